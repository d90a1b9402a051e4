"""Contract of dead letter stores: list each letter once, keep marks, and delete only on request."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.connectors.kafka import DeadTopic
from strandline.errors import SinkError, StateError
from strandline.kernel.dead_letters import ENVELOPE, PUBLIC
from strandline.kernel.output import Output
from strandline.kernel.watermarks import Progress
from strandline.letters.envelope_json import from_json, to_json
from strandline.letters.redrive import redrive
from strandline.letters.store import Marks, Redrive
from strandline.plan.compile import to_stages
from strandline.ports.dead_letter_masking import with_letters
from strandline.ports.ledger import LedgerEntry
from strandline.ports.sinks import OpenSink
from strandline.services.service import Service
from tests.contracts.stores import PostgresStore, ValkeyStore
from tests.plan.endpoints import PaperSource, scores

pytest_plugins = ["strandline.testing.services"]

CLOCK = 1_700_000_000_000
ENTRY = LedgerEntry("mine", 1, 0, "digest")
QUICK = ("sqlite", "folder")
EMBEDDED = ("delta", "parquet", "jsonl")
SERVED = ("postgres", "valkey", "topic")
KINDS = [
    *QUICK,
    *(pytest.param(each, marks=pytest.mark.slow) for each in EMBEDDED),
    *(pytest.param(each, marks=pytest.mark.services) for each in SERVED),
]
ODD = 'odd "panes", 100%?'
"""A name that needs quoting."""


def letter(number: int, **known: Any) -> dict[str, Any]:
    fields = {
        "id": f"{number:032x}", "reason": "undecodable", "exception": None, "detail": "not JSON", "raw": b"\xff{",
        "raw_length": 2, "raw_sha256": "ab" * 32, "masked": None, "source": "topic", "source_partition": "scores-0",
        "source_offset": number, "event_time": CLOCK - 5, "pipeline": "mine", "step": "decode", "schema_id": 2**31,
        "first_seen": CLOCK + number,
    }  # fmt: skip
    return {**fields, **known}


def frame(*letters: dict[str, Any]) -> pl.DataFrame:
    """Letters as a job passes them on."""
    named = pl.DataFrame([*letters], schema=PUBLIC)
    return named.rename({name: own for own, (name, _) in ENVELOPE.items()})


@dataclass
class Place:
    """A pipeline with dead letters in an output of their own, or beside the panes."""

    write: Any

    @property
    def box(self) -> Any:
        return self.write.sink if self.write.dead is None else self.write.dead

    def job(self, lineage: str = "mine") -> OpenSink:
        """Start a driver."""
        (output,) = to_stages(self.write).outputs
        sink: Any = output.sink
        return with_letters(sink.open(output), output, lineage)

    def put(self, *letters: dict[str, Any], batch: int = 0, job: OpenSink | None = None) -> None:
        """Run one batch of a job, from start to end."""
        sink = job or self.job()
        entry = replace(ENTRY, batch=batch, epoch=sink.claim("mine"), digest=f"digest {batch}")
        sink.commit(Output(dead=frame(*letters), progress=Progress(5_000, CLOCK)), entry)
        if job is None:
            sink.close()

    @property
    def store(self) -> Any:
        return self.box.letters()

    def states(self) -> list[tuple[int, str]]:
        """Each letter's number and state."""
        return [(int(id_, 16), state) for id_, state in self.store.read().select("id", "state").rows()]


def pipeline(path: Path, dead: Any = None, sink: Any = None) -> Any:
    panes = scores(PaperSource()).event_time("at", sl.monotone()).key_by("team").window(sl.tumbling(seconds=10))
    own = sl.sqlite(path / "some.db", table="panes") if sink is None else sink
    return panes.aggregate(n=sl.count()).write(own, dead=dead).root


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    match request.param:
        case "sqlite":
            yield Place(pipeline(tmp_path, sink=sl.sqlite(tmp_path / "some.db", table=ODD)))
        case "folder":
            yield Place(pipeline(tmp_path, sink=sl.folder(tmp_path / "panes")))
        case "delta":
            pytest.importorskip("deltalake", reason='it needs "strandline[delta]"')
            yield Place(pipeline(tmp_path, sink=sl.delta(tmp_path / "panes")))
        case "postgres":
            store = PostgresStore(request.getfixturevalue("postgres").address)
            yield Place(pipeline(tmp_path, sink=store.sink(ODD)))
            store.close()
        case "valkey":
            server = ValkeyStore(request.getfixturevalue("valkey").address)
            yield Place(pipeline(tmp_path, sink=server.sink()))
            server.close()
        case "topic":
            broker: Service = request.getfixturevalue("kafka")
            make: Callable[..., str] = request.getfixturevalue("new_topic")
            yield Place(pipeline(tmp_path, sl.dead_topic(make(), servers=broker.address)))
        case _:
            yield Place(pipeline(tmp_path, sl.dead_files(tmp_path / "dead", format=request.param)))


@dataclass
class Taker:
    """A source that supports redrive, and may crash before or after it."""

    name: str = "topic"
    dies: str | None = None
    arrived: tuple[str, ...] = ()
    times: int = 0
    known: set[str] = field(default_factory=set)
    """The redrives whose records have arrived."""
    meanwhile: dict[str, Callable[[], object]] = field(default_factory=dict)
    """An action of another process, run once, just before the next call."""

    def not_redrivable(self, letters: pl.DataFrame) -> dict[str, str]:
        return {}

    def end_positions(self, letters: pl.DataFrame) -> Any:
        self.meanwhile.pop("end_positions", lambda: None)()
        return {"arrived": len(self.arrived)}

    def redrive_records(self, letters: pl.DataFrame, redriven: Redrive, marks: Marks | None) -> tuple[str, ...]:
        self.meanwhile.pop("redrive_records", lambda: None)()
        if redriven.id in self.known:
            return tuple(letters["id"])
        if self.dies == "before":
            raise KeyboardInterrupt
        self.known.add(redriven.id)
        self.arrived, self.times = (*self.arrived, *letters["id"]), self.times + 1
        if self.dies == "after":
            raise KeyboardInterrupt
        return tuple(letters["id"])


def test_a_letter_survives_a_round_trip(place: Place) -> None:
    bare = letter(2, raw=None, event_time=None, source=None, schema_id=None, masked="all", detail="größe\n\x1b[31m")
    place.put(letter(1), bare)
    kept = place.store.read().to_dicts()
    assert kept == [{**each, "state": "new", "redrive": None} for each in (letter(1), bare)]


def test_nothing_is_there_before_the_first_letter(place: Place) -> None:
    place.job().close()
    assert place.store.read().rows() == []
    assert place.store.begun() is None
    assert place.store.drop([letter(1)["id"]]) == 0


def test_letters_of_all_batches_are_listed_oldest_first(place: Place) -> None:
    place.put(letter(3))
    place.put(letter(1), letter(2), batch=1)
    assert [number for number, _ in place.states()] == [1, 2, 3]


def test_a_replayed_batch_adds_nothing_and_removes_no_mark(place: Place) -> None:
    place.put(letter(1), letter(2))
    redrive(place.store, {"topic": Taker()}, [letter(1)["id"]])
    place.put(letter(1), letter(2))
    assert place.states() == [(1, "redriven"), (2, "new")]


def test_a_batch_with_letters_but_without_panes_has_its_letters_once_after_a_replay(place: Place) -> None:
    """Killed between the two: the sink does not know the batch, so the next driver replays it."""
    if place.write.dead is None:
        return  # beside the panes both are one transaction
    box = place.box.open_letters("mine")
    box.put(frame(letter(1)), replace(ENTRY, digest="digest 0"))
    box.close()
    place.put(letter(1))
    assert place.states() == [(1, "new")]
    if isinstance(place.box, DeadTopic):
        assert len(_records(place.box)) == 1


def _records(ask: DeadTopic) -> list[Any]:
    from strandline.connectors.kafka.clients import admin_of, ends, reader, records_from  # noqa: PLC0415

    with reader(ask.servers, ask.security) as consumer:
        return [
            *records_from(
                consumer, {ask.topic: {"0": 0, "1": 0}}, ends(admin_of(ask.servers, ask.security), [ask.topic])
            )
        ]


def test_a_redrive_sends_and_marks_the_chosen_letters_once(place: Place) -> None:
    place.put(letter(1), letter(2), letter(3))
    taker = Taker()
    report = redrive(place.store, {"topic": taker}, [letter(1)["id"], letter(3)["id"]])
    assert taker.arrived == report.sent == (letter(1)["id"], letter(3)["id"])
    assert place.states() == [(1, "redriven"), (2, "new"), (3, "redriven")]
    again = redrive(place.store, {"topic": taker}, [letter(1)["id"]])
    assert (again.sent, taker.times) == ((), 1)
    assert again.left == {letter(1)["id"]: "it was redriven before"}


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_killed_redrive_is_finished_once_by_the_next(place: Place, dies: str) -> None:
    place.put(letter(1), letter(2))
    taker = Taker(dies=dies)
    with pytest.raises(KeyboardInterrupt):
        redrive(place.store, {"topic": taker}, [letter(1)["id"]])
    begun = place.store.begun()
    assert begun is not None
    assert (begun.letters, begun.before) == ((letter(1)["id"],), {"topic": {"arrived": 0}})
    with pytest.raises(SinkError, match="another redrive of .* is in progress"):
        place.store.begin(Redrive("another", (letter(2)["id"],)))
    taker.dies = None
    report = redrive(place.store, {"topic": taker}, [])
    assert (report.completed, report.sent, taker.times) == ((letter(1)["id"],), (), 1)
    assert place.states() == [(1, "redriven"), (2, "new")]
    assert place.store.begun() is None


def test_concurrent_redrives_send_no_letter_twice(place: Place) -> None:
    place.put(letter(1), letter(2), letter(3))
    ids, taker = [letter(number)["id"] for number in (1, 2, 3)], Taker()
    taker.meanwhile["end_positions"] = lambda: redrive(place.store, {"topic": taker}, ids[:1])
    with pytest.raises(SinkError, match="another redrive of .* has just sent 1 of these letters"):
        redrive(place.store, {"topic": taker}, ids)
    assert place.states() == [(1, "redriven"), (2, "new"), (3, "new")]
    others = []
    taker.meanwhile["redrive_records"] = lambda: others.append(redrive(place.store, {"topic": taker}, ids[2:]))
    assert redrive(place.store, {"topic": taker}, ids[1:2]).sent == (ids[1],)
    assert [(each.completed, each.sent) for each in others] == [((ids[1],), (ids[2],))]
    assert taker.arrived == tuple(ids)
    assert [state for _, state in place.states()] == ["redriven"] * 3


def test_a_redrive_that_wakes_late_does_not_end_the_next(place: Place) -> None:
    if isinstance(place.box, DeadTopic):
        return  # as in the one above
    place.put(letter(1), letter(2))
    first, second = Redrive("first", (letter(1)["id"],)), Redrive("second", (letter(2)["id"],))
    place.store.begin(first)
    place.store.finish(first, first.letters)
    place.store.begin(second)
    place.store.finish(first, first.letters)
    assert place.store.begun() == second
    with pytest.raises(SinkError, match="is in progress"):
        place.store.begin(second)


def test_parallel_redrives_send_every_letter_once(place: Place) -> None:
    if isinstance(place.box, DeadTopic):
        return  # each of its steps is a producer, and takes as long as all of these
    letters = [letter(number) for number in range(12)]
    place.put(*letters)
    problems, sent, lock = list[BaseException](), list[str](), threading.Lock()

    class Counting(Taker):
        def redrive_records(self, letters: pl.DataFrame, redriven: Redrive, marks: Marks | None) -> tuple[str, ...]:
            with lock:
                if redriven.id not in taker.known:
                    taker.known.add(redriven.id)
                    sent.extend(letters["id"])
            return tuple(letters["id"])

    taker = Counting()

    def drive(asked: list[str]) -> None:
        try:
            while "new" in [state for number, state in place.states() if f"{number:032x}" in asked]:
                with suppress(SinkError):  # another was faster
                    redrive(place.store, {"topic": taker}, asked)
        except BaseException as problem:  # noqa: BLE001 - told by the thread that waits
            problems.append(problem)

    ids = [each["id"] for each in letters]
    drivers = [threading.Thread(target=drive, args=[ids[start : start + 6]]) for start in (0, 3, 6)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert problems == []
    assert sorted(sent) == ids
    assert {state for _, state in place.states()} == {"redriven"}


def test_a_letter_may_have_any_time_and_is_listed_once_though_it_was_written_twice(place: Place) -> None:
    """At least once, a repeated batch is written again; and a record may have any year."""
    times = [-62_200_000_000_000, -1, 253_402_300_799_999, 900_000_000_000_000]
    letters = frame(*(letter(number, event_time=at) for number, at in enumerate(times)))
    sink = place.job()
    entry = replace(ENTRY, epoch=sink.claim("mine"))
    for _ in range(2):
        sink.write(Output(dead=letters, progress=Progress(5_000, CLOCK)), entry)
    sink.close()
    first, *inside, last = place.store.read()["event_time"].to_list()
    assert inside == times[1:3]
    assert first <= -62_135_596_800_000
    assert last >= 253_402_300_799_999
    assert place.store.drop([letter(1)["id"]]) == 1
    assert [number for number, _ in place.states()] == [0, 2, 3]


def test_finishing_a_redrive_is_idempotent_and_unsent_letters_are_new_again(place: Place) -> None:
    place.put(letter(1), letter(2))
    one = Redrive("one", (letter(1)["id"], letter(2)["id"]))
    place.store.begin(one)
    for _ in range(2):
        place.store.finish(one, [letter(2)["id"]])
    assert place.states() == [(1, "new"), (2, "redriven")]


def test_dropped_letters_stay_dropped(place: Place) -> None:
    place.put(letter(1), letter(2))
    place.put(letter(3), batch=1)
    assert place.store.drop([letter(1)["id"], letter(3)["id"], "unknown"]) == 2
    assert place.states() == [(2, "new")]
    place.put(letter(1), letter(2))
    assert place.states() == [(2, "new")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["duckdb", "csv"])
def test_the_same_holds_for_other_ways_to_write(kind: str, tmp_path: Path) -> None:
    sink: Any = sl.duckdb(tmp_path / "some.duckdb", table=ODD)
    place = Place(pipeline(tmp_path, sink=sl.folder(tmp_path / "panes", format="csv") if kind == "csv" else sink))
    place.job().close()
    assert place.states() == []
    bare = letter(3, raw=None, event_time=None, source=None, schema_id=None, masked="all", detail="größe\n\x1b[31m")
    letters = [letter(1), letter(2, event_time=900_000_000_000_000), bare]
    place.put(*letters)
    kept = place.store.read().to_dicts()
    assert kept[0::2] == [{**each, "state": "new", "redrive": None} for each in letters[0::2]]
    assert kept[1]["event_time"] >= 253_402_300_799_999
    taker = Taker(dies="after")
    with pytest.raises(KeyboardInterrupt):
        redrive(place.store, {"topic": taker}, [letter(1)["id"]])
    taker.dies = None
    taker.meanwhile["end_positions"] = lambda: redrive(place.store, {"topic": taker}, [letter(2)["id"]])
    with pytest.raises(SinkError, match="has just sent 1 of these letters"):
        redrive(place.store, {"topic": taker}, [letter(2)["id"]])
    assert taker.arrived == (letter(1)["id"], letter(2)["id"])
    assert place.store.drop([letter(1)["id"], "unknown"]) == 1
    assert place.states() == [(2, "redriven"), (3, "new")]


def test_a_row_that_a_sink_refuses_is_masked_like_any_letter(tmp_path: Path) -> None:
    place = Place(pipeline(tmp_path, sl.dead_table(mask=["team"])))
    sink = place.job()
    too_large = pl.DataFrame({"team": ["secret"], "n": [2**64 - 1]}, schema_overrides={"n": pl.UInt64})
    entry = replace(ENTRY, epoch=sink.claim("mine"))
    assert sink.commit(Output(late=too_large, progress=Progress(5_000, CLOCK)), entry).refused == 1
    sink.close()
    (kept,) = place.write.sink.letters().read().to_dicts()
    assert (kept["reason"], kept["masked"], kept["source"]) == ("sink_refused", "fields", None)
    assert "secret" not in str(kept)


def test_letters_of_one_record_are_redriven_together_and_once() -> None:
    class Memory:
        """A minimal dead-letter output."""

        def __init__(self, *letters: dict[str, Any]) -> None:
            self.kept = pl.DataFrame([{**each, "redrive": None} for each in letters], infer_schema_length=None)

        def read(self) -> pl.DataFrame:
            return self.kept

        def begun(self) -> None: ...
        def begin(self, redriven: Redrive) -> None: ...
        def marks(self, redriven: Redrive, sent: Any) -> None: ...
        def finish(self, redriven: Redrive, sent: Any) -> None: ...

    first, twin = letter(1, state="new"), letter(2, source_offset=1, step="map f", state="new")
    late = letter(3, source_offset=9, state="new")
    sister = letter(4, source_offset=9, state="redriven")
    pane, stranger = letter(5, source=None, state="new"), letter(6, source="elsewhere", state="new")
    refused = letter(7, source=None, reason="sink_refused", state="new")
    memory: Any = Memory(first, twin, late, sister, pane, stranger, refused)
    ids = [each["id"] for each in (first, late, pane, stranger, refused)]
    report = redrive(memory, {"topic": Taker(), "elsewhere": object()}, ids)
    assert report.sent == (first["id"], twin["id"])
    assert report.left == {
        late["id"]: "its record was redriven with another letter",
        pane["id"]: "it is a pane, not a record of a source",
        stranger["id"]: "elsewhere does not support redrive",
        refused["id"]: "it is a row that a sink refused, not a record of a source",
    }


def test_letters_of_newer_versions_are_refused_and_unknown_fields_are_kept() -> None:
    result = to_json({**letter(1), "colour": "blue"})
    assert from_json(result, "here")["colour"] == "blue"
    with pytest.raises(StateError, match="here is written by a newer Strandline"):
        from_json(result.replace(b'"envelope": 1', b'"envelope": 2'), "here")
    for nothing in (b"", b"[]", b"{}", b'"x"', b"\xff"):
        with pytest.raises(StateError, match="here is not a dead letter"):
            from_json(nothing, "here")
