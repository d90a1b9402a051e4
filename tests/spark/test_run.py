"""Whole jobs on Spark: totals agree with a batch job, whatever happens on the way."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint
from strandline.cli.demo.demo import WINDOW_SECONDS, pipeline
from strandline.cli.demo.recount import Recount, recount
from strandline.connectors.scores import Scores
from strandline.connectors.sql.sink import OpenSql
from strandline.errors import CheckpointMismatch, SetupError, SinkError
from strandline.kernel.output import COUNTED, Counts
from strandline.spark.delivery.deliver import Delivered
from strandline.spark.job import Job

pytestmark = pytest.mark.spark

EVENTS = 2_000
PATIENCE = 240
"""Seconds a job may take on a machine that is busy with something else."""


@dataclass(frozen=True)
class Run:
    """The demo's pipeline over a stream, in a folder of its own."""

    source: Scores
    home: Path

    @property
    def database(self) -> Path:
        return self.home / "scores.db"

    @property
    def checkpoint(self) -> Path:
        return self.home / "checkpoint"

    def start(self, spark: SparkSession, listener: Callable[[Delivered], None] | None = None) -> Job:
        job = pipeline(self.source, self.database).run(spark, checkpoint=self.checkpoint, listener=listener)
        assert isinstance(job, Job)
        return job

    def recount(self) -> Recount:
        origin = int(Checkpoint(self.checkpoint).latest_offsets()["origin"])
        return recount(self.source, origin, self.database, WINDOW_SECONDS)

    def counted(self) -> Counts:
        """Everyone, as the ledger says."""
        query = ", ".join(f"sum(counts ->> '{name}')" for name in COUNTED)
        with closing(sqlite3.connect(self.database)) as connection:
            return Counts(*connection.execute(f"SELECT {query} FROM strandline_ledger").fetchone())

    def tables(self) -> dict[str, list[Any]]:
        """Everything in the database."""
        with closing(sqlite3.connect(self.database)) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}


def is_right(run: Run) -> None:
    """Stream and late together are what a batch job finds, and nobody is missing."""
    result, counts = run.recount(), run.counted()
    assert result.disagreements == []
    assert result.agrees
    assert counts.read == run.source.events
    assert counts.missing == 0
    assert counts.dead == result.dead


@contextmanager
def ending(job: Job) -> Iterator[Job]:
    """A job that is stopped even if its test fails."""
    try:
        yield job
    finally:
        job.stop()


def wait_until(fact: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A job that has run to its end."""
    run = Run(sl.scores(seed=1, events=EVENTS, rate=2_000), tmp_path_factory.mktemp("finished"))
    with ending(run.start(spark)) as job:
        assert job.await_end(PATIENCE)
        assert job.is_complete
        assert job.counts == run.counted()
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_job_agrees_with_a_batch_job(finished: Run) -> None:
    is_right(finished)


@pytest.mark.parametrize("seed", range(2, 11))
def test_every_seed_agrees_with_a_batch_job(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    run = Run(sl.scores(seed=seed, events=EVENTS, rate=2_000), tmp_path)
    with ending(run.start(spark)) as job:
        assert job.await_end(PATIENCE)
    is_right(run)


def test_a_run_on_a_finished_checkpoint_is_complete_at_once_and_changes_nothing(
    finished: Run, spark: SparkSession
) -> None:
    before, tables = contents(finished.checkpoint), finished.tables()
    with ending(finished.start(spark)) as job:
        assert job.is_complete
        assert job.await_end()
    assert spark.streams.active == []
    assert contents(finished.checkpoint) == before
    assert finished.tables() == tables


def test_a_checkpoint_of_another_pipeline_is_refused_before_anything_changes(
    finished: Run, spark: SparkSession
) -> None:
    before, tables = contents(finished.checkpoint), finished.tables()
    other = Run(sl.scores(seed=2, events=EVENTS, rate=2_000), finished.home)
    with pytest.raises(CheckpointMismatch, match="was made by another definition") as refused:
        other.start(spark)
    assert "source seed was 1 and is 2" in refused.value.detail
    assert contents(finished.checkpoint) == before
    assert finished.tables() == tables
    assert spark.streams.active == []


def test_a_job_that_was_stopped_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(sl.scores(seed=11, events=EVENTS, rate=400), tmp_path)
    told: list[Delivered] = []
    with ending(run.start(spark, told.append)) as job:
        wait_until(lambda: len(told) >= 3)
        job.stop()
        assert not job.is_complete
    before = run.counted()
    assert 0 < before.read < EVENTS
    again: list[Delivered] = []
    with ending(run.start(spark, again.append)) as job:
        assert job.await_end(PATIENCE)
    # The batch that was under way may have reached its sink just before the stop; it is then played again and skipped.
    assert sum(each.repeated for each in again) <= 1
    assert sum(each.output.counts.read for each in again if not each.repeated) == EVENTS - before.read
    is_right(run)


def test_waiting_gives_up_when_its_time_is_over_and_the_job_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(sl.scores(seed=12, events=EVENTS, rate=1_000), tmp_path)
    with ending(run.start(spark)) as job:
        assert not job.await_end(0.5)
        assert not job.is_complete
        assert job.await_end(PATIENCE)
    is_right(run)


def test_a_users_session_is_used_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """Also one of several sessions of a context; none of its settings is touched, and it is not stopped."""
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "3")
    own.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    before, others = own.conf.getAll, spark.conf.getAll
    run = Run(sl.scores(seed=13, events=EVENTS, rate=2_000), tmp_path)
    with ending(run.start(own)) as job:
        assert job.await_end(PATIENCE)
    assert own.conf.getAll == before
    assert spark.conf.getAll == others
    assert own.range(3).count() == 3
    is_right(run)


def test_a_users_session_that_cannot_carry_a_job_is_refused_before_anything_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    own = spark.newSession()
    provider = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    own.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    run = Run(sl.scores(seed=13, events=EVENTS, rate=2_000), tmp_path)
    with pytest.raises(SetupError, match="does not keep its state in RocksDB") as refused:
        run.start(own)
    assert provider in refused.value.detail
    assert list(tmp_path.iterdir()) == []


def test_a_python_worker_that_dies_in_the_middle_of_a_batch_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(sl.scores(seed=14, events=EVENTS, rate=500), tmp_path)
    told: list[Delivered] = []
    killed: list[int] = []
    over = threading.Event()

    seen: dict[int, float] = {}

    def kill_some() -> None:
        while len(killed) < 3 and not over.is_set():
            now = time.monotonic()
            # A worker that is killed while it imports fails Spark's start of a worker, not a batch.
            running = [
                process for process in workers() if is_running(process) and now - seen.setdefault(process, now) > 2
            ]
            if told and running:
                os.kill(running[0], signal.SIGKILL)
                killed.append(running[0])
                time.sleep(1.5)
            time.sleep(0.005)

    killer = threading.Thread(target=kill_some)
    with ending(run.start(spark, told.append)) as job:
        killer.start()
        try:
            assert job.await_end(PATIENCE)
        finally:
            over.set()
            killer.join()
    assert killed
    is_right(run)


def workers() -> list[int]:
    """The processes that run our Python code for Spark's tasks, of this process's own Spark only."""
    parents = {int(stat.name): parent_of(stat) for stat in Path("/proc").iterdir() if stat.name.isdigit()}
    daemons = {process for process in parents if is_below(process, os.getpid(), parents) and is_daemon(process)}
    return [process for process, parent in parents.items() if parent in daemons and process in daemons]


def is_daemon(process: int) -> bool:
    """Whether a process is PySpark's daemon or its worker: forked by the fork server, or started by Spark."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return name_of(process) == "pyspark.daemon" or words[1:4] == [b"-m", b"pyspark.daemon", b"pyspark.worker"]


def is_below(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    while process in parents:
        process = parents[process]
        if process == ancestor:
            return True
    return False


def parent_of(process: Path) -> int:
    return int((fields_of(process) or ["?", "0"])[1])


def is_running(process: int) -> bool:
    return (fields_of(Path(f"/proc/{process}")) or ["?"])[0] == "R"


def fields_of(process: Path) -> list[str]:
    """What the kernel says of a process after its name: its state, its parent, and so on."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def name_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def test_a_sink_that_cannot_be_claimed_stops_what_was_started_and_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(self: OpenSql, lineage: str) -> int:
        raise SinkError("this table is nobody's")

    run = Run(sl.scores(seed=1, events=EVENTS, rate=2_000), tmp_path)
    monkeypatch.setattr(OpenSql, "claim", refuses)
    with pytest.raises(SinkError, match="this table is nobody's"):
        run.start(spark)
    assert not spark.streams.active
    monkeypatch.undo()
    with ending(run.start(spark)) as job:
        assert job.await_end(PATIENCE)
    is_right(run)
