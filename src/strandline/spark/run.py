"""How a pipeline travels: compile, translate to Spark, start, return a job. The path on one page."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from strandline.checkpoint.examine import require_sound
from strandline.checkpoint.file_copies import copied
from strandline.checkpoint.job_folder import Checkpoint, Identity
from strandline.errors import CheckpointMismatch, SetupError, StrandlineError
from strandline.plan.arrival_order import hangs_on_arrival
from strandline.plan.compile import groups_for, to_stages
from strandline.plan.endpoints import Source
from strandline.plan.nodes import Root
from strandline.plan.stages import Stages
from strandline.ports.sinks import OpenSink
from strandline.ports.sources import CommittingSource, FileListSource, TopicSource
from strandline.spark.backfill import Backfill, Cut, Phase, begin, enter_live_phase, in_phase, requested, seam_of
from strandline.spark.bounded_run import Query, all_at_once
from strandline.spark.delivery.dead_letter_limit import FailureBudget
from strandline.spark.delivery.deliver import Deliverer, Ranges
from strandline.spark.delivery.open_sinks import close_sinks, open_sinks
from strandline.spark.job import Job, Listener
from strandline.spark.job_observer import Observer
from strandline.spark.launch.background import BackgroundTask
from strandline.spark.launch.preflight import folder_at, require_machine
from strandline.spark.launch.session import (
    WITHOUT_ROWS,
    StartingSession,
    begin_session,
    is_submitted,
    of_records,
    require_classes,
    require_rocksdb,
    submitted_session,
)
from strandline.spark.patches.table import ANY_SESSION, apply_patches
from strandline.spark.sources.heartbeat import heartbeat
from strandline.spark.sources.read_in_task import passes_no_row
from strandline.spark.sources.source_extent import Extent, SingleRange, Way, is_bounded, limited_to, stored_extent
from strandline.spark.tasks.prepare import Seam
from strandline.spark.tasks.task_writes import writers_of
from strandline.spark.translate import translate

Deliver = Callable[[DataFrame, int], None]


def run(  # noqa: PLR0913 - options of a job, each with its default
    root: Root,
    spark: SparkSession | None = None,
    *,
    checkpoint: str | Path,
    listener: Listener | None = None,
    every: str = "0 seconds",
    available_now: bool = False,
    heartbeat_seconds: float = 2,
    failure_budget: FailureBudget | None = None,
    key_groups: int | None = None,
    by_arrival: bool = False,
    backfill: Source | None = None,
    then: Source | None = None,
    at: Cut | None = None,
    settings: Mapping[str, str] | None = None,
    observer: Observer | None = None,
) -> Job:
    """Starts a pipeline. `checkpoint` is the job's folder: a run that finds one there goes on where it ended.

    A batch starts as soon as the one before it has ended, or `every` so often; with `available_now` the job reads what
    is there and ends, its windows still open for the next run. When no data comes, a heartbeat still moves the clock:
    for idle partitions, for triggers that go by processing time, for time to live. A `failure_budget` says how much of
    the input may be dead letters before the job stops. `key_groups` bound how far a job can be spread, for as long as
    it lives: two for each core, unless said. `settings` go before Strandline's own where it starts Spark; a session
    that is given is left as it is, and a program that was handed to spark-submit gets one of that cluster. An
    `observer` hears of all that happens.

    Sources that all end make a bounded run: it ends by itself with every window closed, as one batch where nothing
    hangs on the order of arrival, so that nothing is late; `by_arrival` plays that order all the same. With `backfill`,
    history is read before the topic that the pipeline reads (`then`, if it has several sources): records before the cut
    `at` come from history, those at or after it from the topic. The cut is a time of events, or offsets by partition.
    """
    folder = folder_at(checkpoint)
    spark = _there(spark, settings)
    filling = requested(root, backfill, then, at)
    root = root if filling is None else filling.over(root)
    home = Checkpoint(folder)
    require_sound(folder)
    stages = to_stages(root, _groups(home, spark, key_groups))
    java = require_machine(folder) if spark is None else None
    if spark is not None:
        require_rocksdb(spark)
    bounded = filling is None and is_bounded(stages)
    if by_arrival and not bounded:
        raise SetupError("by_arrival is for input that ends", hint="leave it out: a stream is played as it arrives")
    identity = home.claim(root, stages)
    for place, scan in enumerate(stages.scans):
        if isinstance(scan.source, CommittingSource):
            scan.source.refuse_lost(home.latest_offsets(place))
    if home.has_ended:
        return Job(home, listener, complete=True)
    needed = sorted({name for scan in stages.scans if (name := getattr(scan.source, "needs", None))})
    if spark is None:
        wanted = session_settings(stages) | dict(settings or {})
        log = folder / "spark.log"
        starting = begin_session("strandline", log=log, overrides=wanted, jars=bool(needed), java=java)
        opened, session = _opened(stages, identity.lineage, starting)
    else:
        require_classes(spark, needed)
        apply_patches(spark, names=ANY_SESSION)
        opened, session = open_sinks(stages, identity.lineage), spark
    job = Job(home, listener, available_now=available_now, budget=failure_budget, observer=observer)
    run_of = _Run(session, stages, home, identity, opened, job, heartbeat_seconds, every, measures=observer is not None)
    job.hold()
    try:
        if filling is not None:
            return run_of.fill(filling, available_now=available_now)
        if bounded:
            return run_of.to_the_end(by_arrival=by_arrival)
        return job.attach(run_of.stream(available_now=available_now), opened, run_of.backlog)
    except BaseException:
        job.patience.stopping.set()
        job.release()
        close_sinks(opened)
        raise


@dataclass(frozen=True, slots=True)
class _Run:
    """What carries a job: a stream, a stream up to the end of its sources, or a batch."""

    session: SparkSession
    stages: Stages
    home: Checkpoint
    identity: Identity
    opened: tuple[OpenSink, ...]
    job: Job
    heartbeat_seconds: float
    every: str
    measures: bool = False

    def stream(self, *, available_now: bool, seam: Seam | None = None) -> StreamingQuery:
        drain, every, live = self.home.drain, self.heartbeat_seconds, seam is not None
        # Spark starts a Python to make it, and reads what it must know of the sources meanwhile.
        ticks = BackgroundTask(lambda: heartbeat(self.session, every=every, drain=drain, live=live))
        carried = translate(self.stages, self.session, ticks.result, seam=seam, writers=writers_of(self.opened))
        ranges = copied(self.home, self.identity.lineage)
        # Nothing is left that could refuse, so the sinks can be claimed; meanwhile Spark plans the first batch.
        deliver = BackgroundTask(lambda: self._deliver(ranges))
        writer = carried.writeStream.foreachBatch(_once_there(deliver))
        writer = writer.option("checkpointLocation", str(self.home.spark))
        writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=self.every)
        query = writer.start()
        try:
            deliver.result()
        except BaseException:
            query.stop()
            raise
        return query

    def to_the_end(self, *, by_arrival: bool) -> Job:
        """All that is there: as one batch, or batch after batch as it came, and then a drain."""
        # What was restored from a savepoint is in Spark's state, which only a stream goes on with.
        streamed = by_arrival or bool(self.identity.moves) or hangs_on_arrival(self.stages) is not None
        way = Way.BY_ARRIVAL if streamed else Way.AT_ONCE
        extent = stored_extent(self.home, self.stages, way, self.session, meant=by_arrival)
        if extent.way is Way.AT_ONCE:
            return self.job.attach(self.at_once(extent), self.opened)
        mine = replace(self, stages=limited_to(self.stages, extent))

        def drained() -> StreamingQuery:
            self.home.drain.touch()
            return mine.stream(available_now=True)

        if self.home.drain.exists():
            return self.job.attach(drained(), self.opened, mine.backlog)
        return self.job.attach(mine.stream(available_now=True), self.opened, mine.backlog, then=drained)

    def fill(self, asked: Backfill, *, available_now: bool) -> Job:
        """Reads history to its end, and goes on with the topic."""
        plan = begin(self.home, asked, self.session)

        def live() -> StreamingQuery:
            there = enter_live_phase(self.home, plan)
            mine = replace(self, stages=in_phase(self.stages, asked, there))
            return mine.stream(available_now=available_now, seam=seam_of(self.stages, asked, there))

        if plan.phase is Phase.LIVE:
            return self.job.attach(live(), self.opened)
        history = replace(self, stages=in_phase(self.stages, asked, plan))
        return self.job.attach(history.stream(available_now=True), self.opened, history.backlog, then=live)

    def at_once(self, extent: Extent) -> Query:
        copied(self.home, self.identity.lineage)
        deliver = self._deliver(SingleRange(self.home, extent, self.stages))
        frame = all_at_once(self.stages, extent, self.session, writers_of(self.opened))
        return Query(self.session, lambda: deliver(frame, 0), self.identity.lineage).start()

    def backlog(self) -> dict[str, Any]:
        return _backlog(self.session, self.stages, self.home)

    def _deliver(self, ranges: Ranges) -> Deliver:
        deliverer = Deliverer(
            self.session, self.stages, self.opened, ranges, self.identity, self.job.delivered, self.job.patience,
            measures=self.measures,
        )  # fmt: skip
        return _kept(deliverer, self.job)


def _there(spark: SparkSession | None, settings: Mapping[str, str] | None) -> SparkSession | None:
    """The session that is given, or of the cluster to which this program was handed; None if one is to be started."""
    if spark is not None and settings:
        raise SetupError("a session that runs already takes no settings", hint="set them where the session is made")
    return submitted_session(settings) if spark is None and is_submitted() else spark


def _opened(stages: Stages, lineage: str, starting: StartingSession) -> tuple[tuple[OpenSink, ...], SparkSession]:
    """The sinks at work and the session, which starts while they are opened; both, or neither."""
    try:
        opened = open_sinks(stages, lineage)
    except BaseException:
        starting.cancel()
        raise
    try:
        return opened, starting.wait()
    except BaseException:
        close_sinks(opened)
        raise


def session_settings(stages: Stages) -> dict[str, str]:
    """What this job wants of a session of ours, beside what every one has."""
    passing = [scan.source for scan in stages.scans if not passes_no_row(scan)]
    if not passing:
        return dict(WITHOUT_ROWS)
    raw = [each for each in passing if getattr(each, "decoder", None)]
    known = [_longest(each) for each in raw]
    longest = [each for each in known if each is not None]
    return of_records(max(longest) if len(longest) == len(raw) else None) if raw else {}


def _longest(source: object) -> int | None:
    """How long a record is that crosses by itself; None if nobody knows, or if rows have many and are few."""
    return source.longest() if isinstance(source, TopicSource) and not source.crosses_packed else None


def _backlog(spark: SparkSession, stages: Stages, home: Checkpoint) -> dict[str, Any]:
    """What waits in the sources that are lists of files."""
    newest = home.newest()
    found = {}
    for place, scan in enumerate(stages.scans):
        if isinstance(scan.source, FileListSource):
            lists = {} if newest is None else home.listed(newest, place)
            known = frozenset(file.path for files in lists.values() for file in files)
            found[scan.source.name] = scan.source.waiting(known, spark)
    return found


def _groups(home: Checkpoint, spark: SparkSession | None, asked: int | None) -> int:
    """Those of the state that is there; else those that were asked for, or as many as the machine is good for."""
    kept = home.key_groups
    if asked is not None and asked < 1:
        raise SetupError(f"key_groups is {asked}, and there must be one at least")
    if kept is not None and asked not in (None, kept):
        raise CheckpointMismatch(
            f"the state in {home.folder} is divided into {kept} key groups, so it cannot go on with {asked}",
            hint=f"leave key_groups out, or say {kept}; a savepoint can be restored with any number",
        )
    cores = (os.cpu_count() or 2) if spark is None else spark.sparkContext.defaultParallelism
    return kept or asked or groups_for(cores)


def _once_there(deliver: BackgroundTask[Deliver]) -> Deliver:
    """It is asked for with every batch, and was there after the first."""

    def to_sinks(frame: DataFrame, batch: int) -> None:
        deliver.result()(frame, batch)

    return to_sinks


def _kept(deliverer: Deliverer, job: Job) -> Deliver:
    """Spark turns errors of a callback into long texts; the job keeps the error itself."""

    def deliver(frame: DataFrame, batch: int) -> None:
        try:
            deliverer(frame, batch)
        except StrandlineError as problem:
            job.failed(problem)
            raise RuntimeError(problem.message) from None
        except (PySparkException, Py4JError):
            if not job.patience.stopping.is_set():
                raise
            # A short text: Spark searches all of it with a pattern that overflows the stack.
            raise RuntimeError("the job was stopped during a batch") from None

    return deliver
