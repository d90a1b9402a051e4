"""The Valkey sink where it differs from others: versions, keys, batches in parts, foreign values, and secrets."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.connectors.valkey import chunks
from strandline.connectors.valkey import sink as module
from strandline.connectors.valkey.chunks import Part
from strandline.connectors.valkey.encode_rows import WIDTH, keys_for, versions_of
from strandline.connectors.valkey.lua_scripts import ScriptCalls
from strandline.errors import (
    Fenced,
    InvalidSecret,
    InvalidStep,
    RunError,
    SinkError,
    SinkUnavailable,
    StateError,
    StrandlineError,
)
from strandline.kernel.output import Output
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.dead_letter_masking import with_letters
from strandline.ports.ledger import LedgerEntry, Written
from strandline.ports.sinks import OpenSink
from strandline.services.service import Place, Service
from strandline.services.valkey import Valkey
from strandline.spark.delivery.deliver import Retry, deliver
from tests.contracts.sinks import late, pane, panes
from tests.contracts.stores import ValkeyStore

pytest_plugins = ["strandline.testing.services"]

SECRET = "hunter2-the-canary"


@pytest.fixture
def store(valkey: Service) -> Iterator[ValkeyStore]:
    new_store = ValkeyStore(valkey.address)
    yield new_store
    new_store.close()


@pytest.fixture
def sink(store: ValkeyStore) -> Iterator[OpenSink]:
    found = opened(store)
    yield found
    found.close()


def opened(store: ValkeyStore, **asked: Any) -> OpenSink:
    definition = store.sink(**asked)
    return definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))


def entry(sink: OpenSink, batch: int, lineage: str = "mine", epoch: int | None = None) -> LedgerEntry:
    return LedgerEntry(lineage, sink.claim(lineage) if epoch is None else epoch, batch, f"range {batch}")


def totals(store: ValkeyStore) -> dict[str, int]:
    return {row["team"]: row["total"] for row in store.read()}


# Versions: whatever comes when, the newest stays.


@pytest.mark.services
@pytest.mark.parametrize("later", [pane("red", 1, 2), pane("red", 1, 2, taken_back=True), pane("red", 1, 3, start=-10)])
def test_an_older_pane_changes_nothing(store: ValkeyStore, later: Any) -> None:
    sink = opened(store, key=["team"])
    epoch = sink.claim("mine")
    sink.write(panes(pane("red", 9, 3)), entry(sink, 5, epoch=epoch))
    sink.write(panes(later), entry(sink, 6, epoch=epoch))
    assert totals(store) == {"red": 9}
    sink.close()


@pytest.mark.services
def test_a_pane_of_a_later_batch_replaces_the_same_pane(store: ValkeyStore, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    sink.write(panes(pane("red", 5)), entry(sink, 5, epoch=epoch))
    sink.write(panes(pane("red", 6)), entry(sink, 6, epoch=epoch))
    sink.write(panes(pane("red", 5)), entry(sink, 4, epoch=epoch))
    assert totals(store) == {"red": 6}


@pytest.mark.services
def test_a_later_jobs_panes_replace_earlier_ones_although_their_numbers_restart(
    store: ValkeyStore, sink: OpenSink
) -> None:
    sink.commit(panes(pane("red", 5, 7), pane("blue", 1, 7)), entry(sink, 90))
    sink.commit(panes(pane("red", 6, 0), pane("blue", 1, 0, taken_back=True)), entry(sink, 0, "theirs"))
    assert totals(store) == {"red": 6}
    sink.commit(panes(pane("red", 7, 8)), entry(sink, 91))
    assert totals(store) == {"red": 6}


@pytest.mark.services
def test_elements_of_a_later_batch_win(store: ValkeyStore) -> None:
    definition = store.sink(key=["id"])
    sink = definition.open(Deliver(0, definition, Delivery.AT_LEAST_ONCE, None))
    epoch = sink.claim("mine")
    for batch in (10, 9):
        sink.write(Output(pl.DataFrame({"id": [1], "said": [batch]})), entry(sink, batch, epoch=epoch))
    assert [row["said"] for row in store.read()] == [10]
    sink.close()


instants = st.one_of(st.sampled_from([NEVER, FOREVER, -1, 0, 1]), st.integers(NEVER, FOREVER))
versions = st.tuples(instants, instants, st.integers(0, 9_999), st.integers(0, 10**9), st.integers(0, 10**12))


@given(versions, versions)
def test_versions_sort_as_texts_as_they_do_as_numbers(one: Any, other: Any) -> None:
    def text(version: Any) -> str:
        end, start, job, index, batch = version
        row = pl.DataFrame({"@end": [end], "@start": [start], "@index": [index]})
        return str(versions_of(row, job, batch).item())

    assert (text(one) < text(other)) == (one < other)
    assert len(text(one)) == WIDTH


# Keys.


@given(st.lists(st.tuples(*[st.none() | st.text("a:%\n0A", max_size=3)] * 2), min_size=2, max_size=8, unique=True))
def test_rows_with_other_values_have_other_keys(values: list[tuple[str | None, str | None]]) -> None:
    frame = pl.DataFrame(values, schema={"a": pl.String, "b": pl.String}, orient="row")
    keys = keys_for(frame, ["a", "b"], "t").to_list()
    assert len(set(keys)) == len(values)
    assert not any("\n" in key for key in keys)


@pytest.mark.services
def test_a_row_is_found_under_a_key_that_can_be_written_by_hand(store: ValkeyStore) -> None:
    by_window, by_team = opened(store), opened(store, table="teams", key=["team"])
    for sink in (by_window, by_team):
        sink.commit(panes(pane("red", 5), pane(None, 6), pane("a:b", 7)), entry(sink, 0))
        sink.close()
    first = store.prefix()
    window = "1970-01-01T00:00:00.000Z:1970-01-01T00:00:10.000Z"
    found = store.client.get(f"{first}:red:{window}")
    assert json.loads(found)["total"] == 5
    teams = [key.decode().removeprefix(store.prefix("teams")) for key in store.client.keys("*teams:*")]
    assert sorted(teams) == [":%00", ":a%3Ab", ":red"]


@pytest.mark.services
def test_rows_expire(store: ValkeyStore) -> None:
    sink = opened(store, expires="1h")
    sink.commit(panes(pane("red", 5)), entry(sink, 0))
    (key,) = store.client.keys(f"{store.prefix()}:*")
    assert 0 < store.client.pttl(key) <= 3_600_000
    assert store.client.pttl(f"{store.prefix()}.ledger:mine:0") == -1
    sink.close()


# Batches in parts.


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit parts to three rows."""
    monkeypatch.setattr(chunks, "ROWS", 3)


TEN = panes(*(pane(f"team {number}", number) for number in range(10)))
WHOLE = {f"team {number}": number for number in range(10)}


def stop_at(monkeypatch: pytest.MonkeyPatch, act: str, number: int) -> None:
    """Lose the server at the action with this number."""
    asked = ScriptCalls.act

    def lost(self: ScriptCalls, lineage: str, epoch: int, what: str, *arguments: object, part: int = 0) -> list[int]:
        if (what, part) == (act, number):
            raise SinkUnavailable("lost")
        return asked(self, lineage, epoch, what, *arguments, part=part)

    monkeypatch.setattr(ScriptCalls, "act", lost)


def staged(store: ValkeyStore) -> int:
    return len(store.client.keys("*.staged:*"))


@pytest.mark.services
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("act", "number"), [("stage", 2), ("commit", 0)])
def test_a_large_batch_is_invisible_before_its_ledger_entry(
    store: ValkeyStore, sink: OpenSink, monkeypatch: pytest.MonkeyPatch, act: str, number: int
) -> None:
    once = entry(sink, 0)
    with monkeypatch.context() as patched:
        stop_at(patched, act, number)
        with pytest.raises(SinkUnavailable):
            sink.commit(TEN, once)
    assert (store.read(), staged(store) > 0, sink.latest("mine")) == ([], True, None)
    sink.claim("mine")
    assert staged(store) == 0
    with pytest.raises(Fenced):
        sink.commit(TEN, once)
    assert store.read() == []


@pytest.mark.services
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("who", ["the same driver", "the next driver"])
def test_a_large_batch_in_the_ledger_is_finished_by_the_next_driver(
    store: ValkeyStore, sink: OpenSink, monkeypatch: pytest.MonkeyPatch, number: int, who: str
) -> None:
    once = entry(sink, 0)
    more = Output(TEN.panes, late("red", 1))
    with monkeypatch.context() as patched:
        stop_at(patched, "apply", number)
        with pytest.raises(SinkUnavailable):
            sink.commit(more, once)
    assert len(store.read()) == 3 * number
    if who == "the same driver":
        assert not sink.commit(more, once).fresh
    else:
        sink.claim("mine")
    assert totals(store) == WHOLE
    assert [row["score"] for row in store.read("totals_late")] == [1]
    assert staged(store) == 0
    assert not sink.commit(more, entry(sink, 0)).fresh


@pytest.mark.services
@pytest.mark.usefixtures("small")
def test_large_batches_are_written_and_retracted_in_parts(store: ValkeyStore, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    sink.commit(TEN, entry(sink, 0, epoch=epoch))
    assert totals(store) == WHOLE
    back = panes(*(pane(f"team {number}", number, taken_back=True) for number in range(9)))
    sink.commit(back, entry(sink, 1, epoch=epoch))
    assert totals(store) == {"team 9": 9}
    sink.write(TEN, entry(sink, 2, epoch=epoch))
    assert totals(store) == WHOLE
    assert staged(store) == 0


def test_parts_respect_the_byte_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "BYTES", 100)
    rows = pl.DataFrame({"key": list("abcdef"), "value": ["x" * size for size in (60, 60, 500, 1, 1, 1)]})
    whole = Part(rows=rows.with_columns(number=pl.int_range(6)), late=("y" * 60, "y" * 60, "z"))
    cut = whole.cut()
    assert pl.concat([each.rows for each in cut]).equals(whole.rows)
    assert [len(each.rows) for each in cut if len(each.rows)] == [1, 1, 4]
    assert [each.late for each in cut if each.late] == [("y" * 60,), ("y" * 60, "z")]


# Rows that are not to be written.


@pytest.mark.services
@pytest.mark.parametrize("how", ["whole", "in parts", "at least once"])
def test_foreign_values_are_kept_and_the_row_is_a_dead_letter(
    store: ValkeyStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(chunks, "ROWS", 3 if how == "in parts" else 100)
    sink = opened(store, key=["team"])
    store.client.set(f"{store.prefix()}:team 2", "mine")
    store.client.rpush(f"{store.prefix()}:team 7", "mine", "too")
    done = (sink.write if how == "at least once" else sink.commit)(TEN, entry(sink, 0))
    assert done == Written(refused=2)
    assert store.client.get(f"{store.prefix()}:team 2") == b"mine"
    assert store.client.lrange(f"{store.prefix()}:team 7", 0, -1) == [b"mine", b"too"]
    store.client.delete(f"{store.prefix()}:team 2", f"{store.prefix()}:team 7")
    assert totals(store) == {name: total for name, total in WHOLE.items() if total not in (2, 7)}
    letters = store.read("totals_dead")
    assert sorted(json.loads(row["raw"])["team"] for row in letters) == ["team 2", "team 7"]
    assert {(row["reason"], row["detail"]) for row in letters} == {
        ("sink_refused", "the key holds a value that is not of this sink")
    }
    sink.close()


@pytest.mark.services
@pytest.mark.parametrize("rows", [3, 100])
def test_its_letter_goes_to_the_configured_output(
    store: ValkeyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(chunks, "ROWS", rows)
    definition, elsewhere = store.sink(key=["team"]), sl.dead_files(tmp_path)
    output = Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",), elsewhere)
    sink = with_letters(definition.open(output), output, "mine")
    for name in ("team 2", "team 7"):
        store.client.set(f"{store.prefix()}:{name}", "mine")
    assert sink.commit(TEN, entry(sink, 0)) == Written(refused=2)
    sink.close()
    assert sorted(json.loads(raw)["team"] for raw in elsewhere.letters().read()["raw"]) == ["team 2", "team 7"]
    assert store.read("totals_dead") == []


@pytest.mark.services
def test_a_batch_of_keys_of_another_application_becomes_dead_letters(store: ValkeyStore) -> None:
    sink = opened(store, key=["team"])
    for name in WHOLE:
        store.client.set(f"{store.prefix()}:{name}", "mine")
    once = entry(sink, 0)
    assert sink.commit(TEN, once) == Written(refused=10)
    assert not sink.commit(TEN, once).fresh
    sink.close()
    assert len(store.read("totals_dead")) == 10
    assert {store.client.get(f"{store.prefix()}:{name}") for name in WHOLE} == {b"mine"}


@pytest.mark.services
def test_a_row_that_is_too_large_is_a_cut_dead_letter(
    store: ValkeyStore, sink: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST", 2_000)
    monkeypatch.setattr(module, "_KEPT_BYTES", 100)
    both = panes(pane("red", 5), pane("x" * 3_000, 6))
    long = Output(both.panes, late("y" * 3_000, 1), progress=both.progress)
    assert sink.commit(long, entry(sink, 0)).refused == 2
    assert totals(store) == {"red": 5}
    letters = store.read("totals_dead")
    assert [(row["masked"], len(row["raw"])) for row in letters] == [("cut", 100)] * 2
    assert all("longer than 2000 bytes" in row["detail"] for row in letters)
    assert store.read("totals_late") == []


# The server.


@pytest.mark.services
def test_a_server_that_was_killed_is_waited_for_and_nothing_is_lost(
    valkey: Service, store: ValkeyStore, sink: OpenSink
) -> None:
    first = entry(sink, 0)
    assert sink.commit(panes(pane("red", 5)), first).fresh
    valkey.kill()
    heard: list[RunError | None] = []

    def hears(problem: RunError | None) -> None:
        heard.append(problem)
        if len(heard) == 2:
            valkey.start()

    next_one = LedgerEntry("mine", first.epoch, 1, "next range")
    retry = Retry(report=hears, shortest=0.05)
    assert deliver(sink, Delivery.EXACTLY_ONCE, panes(pane("blue", 6)), next_one, retry) == Written()
    assert all(isinstance(each, SinkUnavailable) for each in heard[:2])
    assert heard[-1] is None
    assert "Valkey at 127.0.0.1" in str(heard[0])
    assert totals(store) == {"red": 5, "blue": 6}


@pytest.mark.services
def test_a_failed_login_is_reported_without_the_secret(
    valkey: Service, store: ValkeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.client.execute_command("ACL", "SETUSER", "stranger", "on", ">right", "~*", "+@all", "-xadd")
    monkeypatch.setenv("CANARY", SECRET)
    monkeypatch.setenv("RIGHT", "right")
    host = valkey.address.replace("://", "://stranger@")
    monkeypatch.setenv("WHOLE", host.replace("stranger@", f"stranger:{SECRET}@"))
    for sink_definition in (sl.valkey(host, prefix="t", password="env:CANARY"), sl.valkey("env:WHOLE", prefix="t")):
        with pytest.raises(SinkError, match="rejects the connection") as refused:
            sink_definition.open(Deliver(0, sink_definition, Delivery.EXACTLY_ONCE, ("team",)))
        assert not isinstance(refused.value, SinkUnavailable)
        assert (
            SECRET
            not in str(refused.value) + repr(sink_definition) + str(sink_definition.definition) + sink_definition.name
        )
    allowed = sl.valkey(host, prefix="t", password="env:RIGHT")
    sink = allowed.open(Deliver(0, allowed, Delivery.EXACTLY_ONCE, ("team",)))
    with pytest.raises(SinkError, match="rejects the connection.*'xadd'"):
        sink.claim("mine")
    sink.close()


@pytest.mark.services
def test_a_server_that_is_full_is_waited_for(store: ValkeyStore, sink: OpenSink) -> None:
    once = entry(sink, 0)
    store.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(SinkUnavailable, match="cannot be written now"):
            sink.commit(panes(pane("red", 5)), once)
        store.client.config_set("maxmemory", 10**12)
        store.client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(SinkError, match="evicts any key") as refused:
            opened(store)
        assert "allkeys-lru" in refused.value.detail
    finally:
        store.client.config_set("maxmemory-policy", "noeviction")
        store.client.config_set("maxmemory", 0)
    assert sink.commit(panes(pane("red", 5)), once).fresh


@pytest.mark.services
def test_a_key_that_is_not_a_stream_is_an_error_before_anything_is_written(store: ValkeyStore, sink: OpenSink) -> None:
    store.client.set(f"{store.prefix()}.dead", "mine")
    with pytest.raises(SinkError, match="totals.dead is not a stream.*it is a string"):
        sink.claim("mine")


class Forgetful(Valkey):
    """A server without an append-only file."""

    def command(self, place: Place) -> list[str]:
        return [*super().command(place), "--appendonly", "no"]


@pytest.mark.services
def test_a_server_without_persistence_is_warned_of_and_its_gap_is_detected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Service(Forgetful(), tmp_path / "valkey", leashed=True)
    server.start()
    try:
        store = ValkeyStore(server.address)
        with caplog.at_level(logging.WARNING, "strandline"):
            sink = opened(store)
        assert "does not persist every write" in caplog.text
        first = LedgerEntry("mine", sink.claim("mine"), 0, "a", None, "at 10")
        assert sink.commit(panes(pane("red", 5)), first).fresh
        server.kill()
        server.start()
        with pytest.raises(StateError, match="there is a gap"):
            sink.commit(panes(pane("red", 6)), LedgerEntry("mine", sink.claim("mine"), 1, "b", "at 10", "at 20"))
        sink.close()
        store.close()
    finally:
        server.stop()


def test_an_unreachable_server_is_reported_with_its_address() -> None:
    definition = sl.valkey("valkey://127.0.0.1:1", prefix="totals")
    with pytest.raises(SinkUnavailable, match="Valkey at 127.0.0.1:1 cannot be reached"):
        definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))


@pytest.mark.parametrize(
    ("url", "asked", "error"),
    [
        (f"valkey://me:{SECRET}@host", {}, InvalidSecret),
        (f"valkey://:{SECRET}@host", {}, InvalidSecret),
        (f"valkey://host?password={SECRET}", {}, InvalidStep),
        (SECRET, {}, InvalidStep),
        (f"http://{SECRET}", {}, InvalidStep),
        (f"valkey://host/{SECRET}", {}, InvalidStep),
        ("valkey://host:port", {}, InvalidStep),
        ("valkey://host", {"password": SECRET}, InvalidSecret),
        ("valkey://host", {"password": "env:CANARY"}, InvalidStep),
        ("valkey://host", {"prefix": ""}, InvalidStep),
        ("valkey://host", {"key": []}, InvalidStep),
        ("valkey://host", {"expires": "0s"}, InvalidStep),
    ],
)
def test_invalid_addresses_and_plain_secrets_are_refused(
    url: str, asked: dict[str, Any], error: type[StrandlineError]
) -> None:
    with pytest.raises(error) as refused:
        sl.valkey(url, **{"prefix": "totals", **asked})
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("url", ["valkeys://host", "rediss://host:1/2", "redis://localhost", "unix:///run/valkey.sock"])
def test_a_password_needs_tls_or_a_local_server(url: str) -> None:
    assert sl.valkey(url, prefix="totals", password="env:CANARY").place.server.password is not None


def test_a_password_is_sent_unencrypted_only_if_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not sl.valkey("valkey://host", prefix="t", password="env:CANARY", over_tls=False).place.server.over_tls
    monkeypatch.setenv("WHOLE", f"valkey://me:{SECRET}@host.invalid")
    definition = sl.valkey("env:WHOLE", prefix="totals")
    with pytest.raises(InvalidStep, match="unencrypted"):
        definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))
