"""Rows that a sink refuses: dead letters go to the output of `dead=`, once, before the batch counts as written."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.connectors.kafka import DeadTopic
from strandline.connectors.sql import sink as at_work
from strandline.errors import SinkUnavailable
from strandline.kernel.dead_letters import PUBLIC
from strandline.plan.compile import to_stages
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.dead_letter_masking import with_letters
from strandline.ports.ledger import LedgerEntry, Written
from strandline.ports.sinks import OpenSink
from strandline.spark.delivery.deliver import Retry, deliver
from tests.contracts.sinks import CREATED, pane, panes
from tests.contracts.stores import DuckDbStore, PostgresStore, SqliteStore, Store, records_of
from tests.contracts.test_letters import frame, letter
from tests.plan.endpoints import PaperSource, scores

pytest_plugins = ["strandline.testing.services"]

PLACES = [
    ("sqlite", "jsonl"), pytest.param(("duckdb", "parquet"), marks=pytest.mark.slow),
    pytest.param(("postgres", "parquet"), marks=pytest.mark.services),
    pytest.param(("sqlite", "topic"), marks=pytest.mark.services),
]  # fmt: skip
PICKY = CREATED.replace("total bigint", "total bigint CHECK (total < 100)")


class Killed(BaseException):
    """A crash: nothing is cleaned up after it."""


@dataclass
class Apart:
    """A sink whose table accepts small totals only, and a separate dead-letter output."""

    store: Store
    dead: Any

    def job(self) -> OpenSink:
        source = PaperSource(columns="team string, score long, at timestamp")
        windows = scores(source).event_time("at", sl.monotone()).key_by("team").window(sl.tumbling(seconds=10))
        stages = to_stages(windows.aggregate(total=sl.sum("score")).write(self.store.sink(), dead=self.dead).root)
        return opened(stages.outputs[0])

    def totals(self) -> list[int]:
        return sorted(row["total"] for row in self.store.read())

    def refused(self) -> list[int]:
        """The refused totals; the sink itself stores no letter of them."""
        assert self.store.read("totals_dead") == []
        letters = self.dead.letters().read().filter(reason="sink_refused")
        assert letters["id"].n_unique() == letters.height
        return sorted(json.loads(raw)["total"] for raw in letters["raw"])

    def records(self) -> int:
        """The number of stored letters, duplicates included."""
        if isinstance(self.dead, DeadTopic):
            return len(records_of(self.dead.servers, self.dead.topic))
        return int(self.dead.letters().find().height)


@pytest.fixture(params=PLACES, ids=" to ".join)
def apart(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Apart]:
    sink, box = request.param
    store: Any
    match sink:
        case "sqlite":
            store = SqliteStore(tmp_path / "totals.db")
        case "duckdb":
            store = DuckDbStore(tmp_path / "totals.duckdb")
        case _:
            store = PostgresStore(request.getfixturevalue("postgres").address)
    store.make("totals", PICKY)
    if box == "topic":
        make: Callable[..., str] = request.getfixturevalue("new_topic")
        dead: Any = sl.dead_topic(make(), servers=request.getfixturevalue("kafka").address)
    else:
        dead = sl.dead_files(tmp_path / "dead", format=box)
    yield Apart(store, dead)
    if sink == "postgres":
        store.close()


def opened(output: Deliver) -> OpenSink:
    """Start a driver."""
    sink: Any = output.sink
    return with_letters(sink.open(output), output, "mine")


def entry(sink: OpenSink, batch: int, epoch: int | None = None) -> LedgerEntry:
    return LedgerEntry("mine", sink.claim("mine") if epoch is None else epoch, batch, f"range {batch}")


def test_refused_rows_go_to_the_dead_letter_output_and_the_others_are_written(apart: Apart) -> None:
    sink = apart.job()
    epoch = sink.claim("mine")
    for batch, large in enumerate((700, 700, 800)):
        output = panes(pane("red", large, batch), pane("blue", batch, batch))
        output = replace(output, dead=frame(letter(batch)))
        for fresh in (True, False):
            assert sink.commit(output, entry(sink, batch, epoch)) == Written(fresh=fresh, refused=int(fresh))
    sink.close()
    assert apart.totals() == [0, 1, 2]
    assert apart.refused() == [700, 700, 800]
    assert apart.dead.letters().read().select(*PUBLIC).height == apart.records() == 6


def test_letters_are_stored_once_if_the_job_is_killed_before_the_rows(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = replace(panes(pane("red", 700), pane("blue", 1)), dead=frame(letter(1)))

    def die(point: str) -> None:
        if point == "C9":
            raise Killed

    sink = apart.job()
    with monkeypatch.context() as patched:
        patched.setattr(at_work, "crash_point", die)
        with pytest.raises(Killed):
            sink.commit(output, entry(sink, 0))
    sink.close()
    assert (apart.totals(), apart.refused()) == ([], [700])
    sink = apart.job()
    assert sink.commit(output, entry(sink, 0)) == Written(refused=1)
    sink.close()
    assert (apart.totals(), apart.refused(), apart.records()) == ([1], [700], 2)


def test_letters_are_stored_once_if_the_sink_was_unavailable_after_them(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job continues, and retries the batch."""
    output = replace(panes(pane("red", 700), pane("blue", 1)), dead=frame(letter(1)))
    away = iter([SinkUnavailable("it restarts"), None])

    def lost(point: str) -> None:
        if point == "C9" and (problem := next(away)):
            raise problem

    monkeypatch.setattr(at_work, "crash_point", lost)
    sink = apart.job()
    done = deliver(sink, Delivery.EXACTLY_ONCE, output, entry(sink, 0), Retry(shortest=0.001))
    sink.close()
    assert done == Written(refused=1)
    assert (apart.totals(), apart.refused(), apart.records()) == ([1], [700], 2)


def test_letters_go_there_at_least_once_too(apart: Apart) -> None:
    sink = apart.job()
    again = entry(sink, 0)
    for _ in range(2):
        assert sink.write(panes(pane("red", 700), pane("blue", 1)), again) == Written(refused=1)
    sink.close()
    assert (apart.totals(), apart.refused()) == ([1, 1], [700])


@pytest.mark.parametrize("box", ["files", pytest.param("topic", marks=pytest.mark.services)])
def test_two_outputs_may_share_a_dead_letter_output(tmp_path: Path, request: pytest.FixtureRequest, box: str) -> None:
    dead: Any = sl.dead_files(tmp_path / "dead")
    if box == "topic":
        topic = request.getfixturevalue("new_topic")()
        dead = sl.dead_topic(topic, servers=request.getfixturevalue("kafka").address)
    stores = [SqliteStore(tmp_path / f"{name}.db") for name in ("one", "other")]
    rows = sl.read(PaperSource(columns="team string"))
    stages = to_stages(sl.together(*(rows.write(store.sink(), dead=dead) for store in stores)).root)
    for _ in range(2):  # the second time after a restart
        for number, sink in enumerate([*map(opened, stages.outputs)]):
            sink.commit(replace(panes(pane("red", 1)), dead=frame(letter(number))), entry(sink, 0))
            sink.close()
    assert [int(id_, 16) for id_ in dead.letters().read()["id"]] == [0, 1]
