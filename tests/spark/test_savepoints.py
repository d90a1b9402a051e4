"""A job on its journey: saved while it runs, upgraded, rescaled, rewound, forked, replayed into a new version.

It reads a real topic and writes to a real database, and its tables are right after every move.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint
from strandline.errors import SavepointError, StateError
from strandline.kernel.blocks.block import START
from strandline.plan.upgrade.state_upgrade import Verdict
from strandline.savepoints.files import Savepoint, load, verify
from strandline.savepoints.restore import Restored, restore
from strandline.savepoints.state_reader import JobState, read_state
from strandline.savepoints.take import create
from strandline.services.service import Service
from strandline.spark.job import Job
from tests.spark.test_replayed import strandline

pytestmark = pytest.mark.spark

COLUMNS = "team string, user string, score long, at timestamp"
Event = tuple[str, str, int, int]
"""Team, user, score, second of the day."""

FED: list[list[Event]] = [
    [("red", "ann", 1, 1), ("blue", "bob", 2, 20), ("red", "cid", 4, 61)],
    [("red", "ann", 8, 70), ("green", "dot", 16, 59), ("blue", "bob", 32, 119)],
    [("red", "eve", 64, 110), ("blue", "fay", 128, 130), ("grey", "gus", 3, 30)],
    [("green", "dot", 256, 62), ("red", "ann", 512, 181), ("pink", "hal", 5, 125)],
    [("blue", "bob", 1024, 182), ("red", "ann", 2048, 115), ("teal", "ida", 7, 200)],
    [("teal", "ida", 9, 119), ("red", "eve", 4096, 240), ("blue", "fay", 1, 241)],
]
"""Out of order, but nobody too late."""

LATER = """
import strandline as sl
from tests.spark.test_savepoints import told

pipeline = told({topic!r}, {servers!r}, best=True).write(sl.postgres("totals", dsn={dsn!r}, evolve=True))
"""
"""The second version as a user's file, with the table that is replayed."""

Teams = dict[tuple[str, int], tuple[Any, ...]]


def told(topic: str, servers: str, *, best: bool) -> sl.Panes:
    """Totals by team and minute; in the second version the best score too."""
    more = {"best": sl.max("score")} if best else {}
    return (
        sl.read(sl.kafka(topic, servers=servers, value=sl.json(COLUMNS)))
        .event_time("at", sl.bounded(seconds=10))
        .key_by("team")
        .window(sl.tumbling(minutes=1))
        .trigger(sl.after_watermark(early=sl.repeatedly(sl.after_count(1)), late=sl.after_count(1)))
        .accumulate(sl.retracting)
        .allow_lateness(minutes=10)
        .aggregate(total=sl.sum("score"), users=sl.count_distinct("user"), **more)
    )


class Journey:
    """The job's topic, its database, and what should be in it."""

    def __init__(self, spark: SparkSession, folder: Path, topic: str, servers: str, server: str) -> None:
        self.spark, self.folder, self.topic, self.servers = spark, folder, topic, servers
        self._server, self.dsn = server, server.rpartition("/")[0] + "/journey"
        self.fed = 0
        self.upgraded_at: int | None = None

    def pipeline(self, *, best: bool = False, totals: str = "totals", grand: str = "grand") -> sl.Pipeline:
        """Totals by team and minute, and of all teams together."""
        teams = told(self.topic, self.servers, best=best)
        all_of_them = teams.with_columns(everyone=pl.lit("all")).key_by("everyone").window(sl.tumbling(minutes=1))
        summed = all_of_them.allow_lateness(minutes=10).accumulate(sl.accumulating).aggregate(total=sl.sum("total"))
        return sl.together(
            teams.write(sl.postgres(totals, dsn=self.dsn, evolve=True)),
            summed.write(sl.postgres(grand, dsn=self.dsn, key=["everyone", "window_start"])),
        )

    def feed(self) -> int:
        """The next events, each to a partition; how many there are by now."""
        producer = Producer({"bootstrap.servers": self.servers})
        for number, (team, user, score, at) in enumerate(FED[self.fed]):
            row = {"team": team, "user": user, "score": score, "at": f"2024-05-01T12:{at // 60:02}:{at % 60:02}Z"}
            producer.produce(self.topic, json.dumps(row).encode(), partition=number % 2)
        assert producer.flush(60) == 0
        self.fed += 1
        return sum(map(len, FED[: self.fed]))

    def read_by(self, home: Checkpoint) -> int:
        """How many events are in batches, planned or done."""
        return sum(home.latest_offsets().get(self.topic, {}).values())

    def start(self, pipeline: sl.Pipeline, home: Path, **options: Any) -> Job:
        # No tick in years: the only batches are those that bring something.
        job: Job = pipeline.run(self.spark, checkpoint=home, heartbeat_seconds=1e9, **options)
        return job

    def play(self, pipeline: sl.Pipeline, home: Path) -> None:
        assert self.start(pipeline, home, available_now=True).await_end(240)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(query).fetchall()

    def administer(self, *statements: str) -> None:
        """On the server itself, where databases are made, copied and renamed while nobody is in them."""
        with psycopg.connect(self._server, autocommit=True) as connection:
            for each in statements:
                connection.execute(each)

    def expected(self, since: int = 0, *, replayed: bool = False) -> tuple[Teams, dict[int, int]]:
        """From scratch, over all that was fed; only of what was touched `since` then. A replay knows every best."""
        seen: dict[tuple[str, int], list[tuple[int, Event]]] = defaultdict(list)
        for number, events in enumerate(FED[: self.fed]):
            for event in events:
                seen[event[0], event[3] // 60].append((number, event))
        teams, known = {}, 0 if replayed else self.upgraded_at
        for place, found in seen.items():
            total, users = sum(e[2] for _, e in found), len({e[1] for _, e in found})
            late = [e[2] for n, e in found if known is not None and n >= known]
            if max(n for n, _ in found) >= since:
                teams[place] = (total, users, max(late, default=None))
        minutes = {minute for _, minute in teams}
        grand = {m: sum(e[2] for (_, at), es in seen.items() if at == m for _, e in es) for m in minutes}
        return teams, grand

    def seen(self) -> Teams:
        """What readers of the view that is switched see."""
        rows = self.ask("SELECT team, window_start, total, users, best FROM totals_current")
        return {(team, at.minute): tuple(told) for team, at, *told in rows}

    def require(self, totals: str = "totals", grand: str = "grand", since: int = 0) -> None:
        """The tables agree with a recomputation, no pane is there twice, and nothing lacks that was touched `since`."""
        columns = f"SELECT column_name FROM information_schema.columns WHERE table_name = '{totals}'"
        best = "best" if ("best",) in self.ask(columns) else "NULL"
        panes = self.ask(
            f"SELECT team, window_start, pane_index, total, users, {best} FROM {totals} WHERE NOT retraction"
        )
        assert len({pane[:3] for pane in panes}) == len(panes)
        latest = {(team, at.minute): tuple(told) for team, at, _, *told in sorted(panes, key=lambda p: p[2])}
        (teams, minutes), (touched, _) = self.expected(), self.expected(since)
        found = dict(self.ask(f"SELECT window_start, total FROM {grand}"))
        assert touched.keys() <= latest.keys()
        assert latest == {place: teams[place] for place in latest}
        assert {start.minute: total for start, total in found.items()} == {m: minutes[m] for _, m in latest}


@pytest.fixture
def journey(
    spark: SparkSession, tmp_path: Path, kafka: Service, postgres: Service, new_topic: Callable[..., str]
) -> Iterator[Journey]:
    mine = Journey(spark, tmp_path, new_topic(partitions=2), kafka.address, postgres.address)
    mine.administer("CREATE DATABASE journey")
    yield mine
    mine.administer("DROP DATABASE journey WITH (FORCE)")


def sums(state: JobState) -> dict[tuple[str, int], int]:
    """What the open windows of the first step hold, by team and minute, from all slices of all key groups."""
    slices = [each for group in state.of_step(0) for each in group.slices()]
    assert all(
        each.entry is not None and (each.entry.rows, each.entry.size) == (each.rows, each.size) for each in slices
    )
    rows = pl.concat([each.frames["windows"] for each in slices]).select("team", START, "@total").rows()
    return {(team, start // 60_000 % 60): total for team, start, total in rows}


def save_while_it_runs(journey: Journey, spark: SparkSession, job: Path) -> Savepoint:
    home, expected, batches = Checkpoint(job), [], []
    running = journey.start(journey.pipeline(), job)
    try:
        for _ in range(2):
            many = journey.feed()
            expected.append({place: told[0] for place, told in journey.expected()[0].items()})
            while journey.read_by(home) < many or home.newest() not in home.committed():
                assert not running.await_end(0.1)
            batches.append(home.newest())
        state = read_state(spark, home)
        saved = create(spark, job, journey.folder / "saved" / "one")
        assert running.status.state == "running"
    finally:
        running.stop()
    assert [state.batch, state.steps, {each.partition for each in state.groups}] == [batches[1], (0, 1), {0, 1}]
    assert [sums(read_state(spark, home, batches[0])), sums(state)] == expected
    with pytest.raises(StateError, match="batch 99 is not kept"):
        read_state(spark, home, 99)
    assert not [*job.glob(".held-*")]
    return saved


def rewind(journey: Journey, spark: SparkSession, was: Path, job: Path) -> Savepoint:
    """To the batch before the last, which the sink has already; it is taken back to a copy of that moment."""
    better = journey.pipeline(best=True)
    journey.administer("CREATE DATABASE copy TEMPLATE journey")
    kept = Checkpoint(was).committed()[-1]
    journey.feed()
    journey.play(better, was)
    journey.require()
    before = create(spark, was, journey.folder / "saved" / "three", batch=kept)
    with pytest.raises(SavepointError, match="is not where the savepoint is") as refused:
        restore(better.root, spark, before.folder, job)
    assert f"the savepoint is at batch {kept}, the sink at batch {kept + 1}" in refused.value.detail
    assert not job.exists()
    journey.administer("DROP DATABASE journey", "ALTER DATABASE copy RENAME TO journey")
    restore(better.root, spark, before.folder, job)
    journey.play(better, job)
    journey.require()
    return before


def fork(journey: Journey, spark: SparkSession, savepoint: Savepoint, job: Path) -> Restored:
    with pytest.raises(SavepointError, match="a fork cannot write to"):
        restore(journey.pipeline(best=True).root, spark, savepoint.folder, job, fork=True)
    apart = journey.pipeline(best=True, totals="others", grand="all_others")
    forked = restore(apart.root, spark, savepoint.folder, job, fork=True, partitions=1, key_groups=3)
    journey.play(apart, job)
    journey.require("others", "all_others", since=journey.fed - 1)
    journey.require()
    return forked


def replay(journey: Journey, live: Path) -> None:
    """From the topic into a new version, in which windows from before the upgrade have a best score too."""
    file, home = journey.folder / "later.py", journey.folder / "replayed"
    file.write_text(LATER.format(topic=journey.topic, servers=journey.servers, dsn=journey.dsn))
    start = ("start", str(file), "--from", "earliest", "--to-new-version", "totals_v2", "--checkpoint", str(home))
    assert strandline("replay", *start, "--plain") == 0
    assert journey.seen() == journey.expected()[0]
    assert strandline("replay", "diff", str(file), "totals_v2") == 1
    assert strandline("replay", "switch", str(file), "totals_v2") == 0
    assert journey.seen() == journey.expected(replayed=True)[0]
    # Both go on, and each reader sees what belongs to it.
    journey.feed()
    journey.play(journey.pipeline(best=True), live)
    journey.require()
    assert strandline("replay", *start, "--plain") == 0
    assert journey.seen() == journey.expected(replayed=True)[0]


def test_a_job_is_saved_upgraded_rescaled_rewound_forked_and_replayed_and_its_tables_are_right_after_every_move(
    journey: Journey, spark: SparkSession, tmp_path: Path
) -> None:
    first, second, third, fourth, fifth = (tmp_path / f"job-{n}" for n in range(5))
    better = journey.pipeline(best=True)
    saved = save_while_it_runs(journey, spark, first)
    journey.require()
    verify(saved)
    at = saved.manifest.batch
    assert [step.rows for step in saved.manifest.steps] == [5, 2]

    done = restore(better.root, spark, saved.folder, second)
    assert done.upgrade.verdict is Verdict.COMPATIBLE
    assert "best is new" in done.upgrade.steps[0].part.words[0]
    journey.upgraded_at = journey.fed
    journey.feed()
    journey.play(better, second)
    journey.require()
    ledger = "SELECT DISTINCT lineage, max(epoch), max(batch) FROM strandline_ledger GROUP BY lineage, sink"
    assert journey.ask(ledger) == [(done.lineage, 2, at + 1)]

    grown = create(spark, second, tmp_path / "saved" / "two")
    restore(better.root, spark, grown.folder, third, partitions=5, key_groups=10)
    journey.feed()
    journey.play(better, third)
    journey.require()
    state = read_state(spark, Checkpoint(third))
    assert {group.partition for group in state.groups} == set(range(5))
    assert [group.group for group in state.of_step(0)] == [*range(10)]

    before = rewind(journey, spark, third, fourth)
    assert fork(journey, spark, before, fifth).lineage != done.lineage
    moves = Checkpoint(fifth).identity.moves
    assert [(move["as"], move["name"], move["batch"]) for move in moves] == [
        ("restore", "one", at), ("restore", "two", at + 1), ("fork", "three", at + 2)
    ]  # fmt: skip
    assert load(before.folder).manifest.identity.moves == moves[:2]
    replay(journey, fourth)
