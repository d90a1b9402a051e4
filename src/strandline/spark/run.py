"""Run a pipeline: compile, translate to Spark, start, return a job."""

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
from strandline.checkpoint.file_copies import with_copies
from strandline.checkpoint.job_folder import Checkpoint, Identity
from strandline.errors import CheckpointMismatch, SetupError, StrandlineError
from strandline.plan.arrival_order import order_dependence
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
from strandline.spark.launch.preflight import local_folder, require_machine
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
    """Start a pipeline. `checkpoint` is the job's folder; a run goes on where the last one in that folder ended.

    A batch starts as soon as the previous one has ended, or `every` so often. With `available_now` the job reads
    what is there and ends; its windows stay open for the next run. Without data a heartbeat advances processing
    time, for idle partitions, processing-time triggers and time to live; it is slower while none of them waits.
    `failure_budget` limits the share of dead letters before the job stops. `key_groups` limits the parallelism of the
    job for its life; the default is two a core. `settings` override Strandline's own where it starts Spark. A session
    that is given is not changed, and a program started by spark-submit gets a session of that cluster. `observer`
    receives the events of the job.

    If all sources are bounded, the job ends by itself with every window closed. It runs as one batch if no result
    depends on arrival order, so that nothing is late; `by_arrival` keeps the arrival order. With `backfill`, history is
    read before the topic of the pipeline (`then` names it if there are several sources). Records before the cut `at`
    come from history, the others from the topic. The cut is an event time, or offsets by partition.
    """
    folder = local_folder(checkpoint)
    spark = _given_session(spark, settings)
    backfill_request = requested(root, backfill, then, at)
    root = root if backfill_request is None else backfill_request.over(root)
    home = Checkpoint(folder)
    require_sound(folder)
    stages = to_stages(root, _groups(home, spark, key_groups))
    java = require_machine(folder) if spark is None else None
    if spark is not None:
        require_rocksdb(spark)
    bounded = backfill_request is None and is_bounded(stages)
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
        opened, session = _open_all(stages, identity.lineage, starting)
    else:
        require_classes(spark, needed)
        apply_patches(spark, names=ANY_SESSION)
        opened, session = open_sinks(stages, identity.lineage), spark
    job = Job(home, listener, available_now=available_now, budget=failure_budget, observer=observer)
    runner = _Run(session, stages, home, identity, opened, job, heartbeat_seconds, every, measures=observer is not None)
    job.hold()
    try:
        if backfill_request is not None:
            return runner.fill(backfill_request, available_now=available_now)
        if bounded:
            return runner.to_the_end(by_arrival=by_arrival)
        return job.attach(runner.stream(available_now=available_now), opened, runner.backlog)
    except BaseException:
        job.retry.stopping.set()
        job.release()
        close_sinks(opened)
        raise


@dataclass(frozen=True, slots=True)
class _Run:
    """Starts the queries of a job: a stream, a stream up to the end of its sources, or one batch."""

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
        drain, due, every, live = self.home.drain, self.home.due, self.heartbeat_seconds, seam is not None
        # What an earlier run wrote is over.
        due.unlink(missing_ok=True)
        # Spark starts a Python process for the heartbeat. Sources are set up at the same time.
        ticks = BackgroundTask(lambda: heartbeat(self.session, every=every, drain=drain, due=due, live=live))
        carried = translate(self.stages, self.session, ticks.result, seam=seam, writers=writers_of(self.opened))
        ranges = with_copies(self.home, self.identity.lineage)
        # No check is left that could fail, so the sinks are claimed, while Spark plans the first batch.
        deliver = BackgroundTask(lambda: self._deliver(ranges, due))
        writer = carried.writeStream.foreachBatch(_waiting_for(deliver))
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
        """Read all there is: as one batch, or in arrival order and then a drain."""
        # State restored from a savepoint is in Spark's state store, which only a stream reads.
        streamed = by_arrival or bool(self.identity.moves) or order_dependence(self.stages) is not None
        way = Way.BY_ARRIVAL if streamed else Way.AT_ONCE
        extent = stored_extent(self.home, self.stages, way, self.session, meant=by_arrival)
        if extent.way is Way.AT_ONCE:
            return self.job.attach(self.at_once(extent), self.opened)
        runner = replace(self, stages=limited_to(self.stages, extent))

        def drained() -> StreamingQuery:
            self.home.drain.touch()
            return runner.stream(available_now=True)

        if self.home.drain.exists():
            return self.job.attach(drained(), self.opened, runner.backlog)
        return self.job.attach(runner.stream(available_now=True), self.opened, runner.backlog, then=drained)

    def fill(self, request: Backfill, *, available_now: bool) -> Job:
        """Read history to its end, then the topic."""
        plan = begin(self.home, request, self.session)

        def live() -> StreamingQuery:
            there = enter_live_phase(self.home, plan)
            runner = replace(self, stages=in_phase(self.stages, request, there))
            return runner.stream(available_now=available_now, seam=seam_of(self.stages, request, there))

        if plan.phase is Phase.LIVE:
            return self.job.attach(live(), self.opened)
        history = replace(self, stages=in_phase(self.stages, request, plan))
        return self.job.attach(history.stream(available_now=True), self.opened, history.backlog, then=live)

    def at_once(self, extent: Extent) -> Query:
        with_copies(self.home, self.identity.lineage)
        deliver = self._deliver(SingleRange(self.home, extent, self.stages))
        frame = all_at_once(self.stages, extent, self.session, writers_of(self.opened))
        return Query(self.session, lambda: deliver(frame, 0), self.identity.lineage).start()

    def backlog(self) -> dict[str, Any]:
        return _backlog(self.session, self.stages, self.home)

    def _deliver(self, ranges: Ranges, due: Path | None = None) -> Deliver:
        deliverer = Deliverer(
            self.session, self.stages, self.opened, ranges, self.identity, self.job.delivered, self.job.retry,
            measures=self.measures, due_file=due,
        )  # fmt: skip
        return _keeping_errors(deliverer, self.job)


def _given_session(spark: SparkSession | None, settings: Mapping[str, str] | None) -> SparkSession | None:
    """Return the given session, or that of spark-submit's cluster; None if one must be started."""
    if spark is not None and settings:
        raise SetupError("a session that runs already takes no settings", hint="set them where the session is made")
    return submitted_session(settings) if spark is None and is_submitted() else spark


def _open_all(stages: Stages, lineage: str, starting: StartingSession) -> tuple[tuple[OpenSink, ...], SparkSession]:
    """Open the sinks while the session starts. Returns both, or closes both."""
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
    """Return the settings of this job, in addition to those of every session."""
    passing = [scan.source for scan in stages.scans if not passes_no_row(scan)]
    if not passing:
        return dict(WITHOUT_ROWS)
    raw = [each for each in passing if getattr(each, "decoder", None)]
    known = [_longest(each) for each in raw]
    longest = [each for each in known if each is not None]
    return of_records(max(longest) if len(longest) == len(raw) else None) if raw else {}


def _longest(source: object) -> int | None:
    """Return the largest record that may cross in a row of its own; None if unknown, or if rows are packed."""
    return source.longest() if isinstance(source, TopicSource) and not source.crosses_packed else None


def _backlog(spark: SparkSession, stages: Stages, home: Checkpoint) -> dict[str, Any]:
    """Return the backlog of the sources that list files."""
    newest = home.newest()
    found = {}
    for place, scan in enumerate(stages.scans):
        if isinstance(scan.source, FileListSource):
            lists = {} if newest is None else home.listed(newest, place)
            known = frozenset(file.path for files in lists.values() for file in files)
            found[scan.source.name] = scan.source.waiting(known, spark)
    return found


def _groups(home: Checkpoint, spark: SparkSession | None, wanted: int | None) -> int:
    """Return the number of key groups: that of existing state, the requested one, or the default for the cores."""
    kept = home.key_groups
    if wanted is not None and wanted < 1:
        raise SetupError(f"key_groups is {wanted}, and there must be one at least")
    if kept is not None and wanted not in (None, kept):
        raise CheckpointMismatch(
            f"the state in {home.folder} is divided into {kept} key groups, so it cannot go on with {wanted}",
            hint=f"leave key_groups out, or say {kept}; a savepoint can be restored with any number",
        )
    cores = (os.cpu_count() or 2) if spark is None else spark.sparkContext.defaultParallelism
    return kept or wanted or groups_for(cores)


def _waiting_for(deliver: BackgroundTask[Deliver]) -> Deliver:
    """Return a batch function that waits for the deliverer with the first batch."""

    def to_sinks(frame: DataFrame, batch: int) -> None:
        deliver.result()(frame, batch)

    return to_sinks


def _keeping_errors(deliverer: Deliverer, job: Job) -> Deliver:
    """Return a batch function that keeps an error in the job. Spark would turn it into a long text."""

    def deliver(frame: DataFrame, batch: int) -> None:
        try:
            deliverer(frame, batch)
        except StrandlineError as problem:
            job.failed(problem)
            raise RuntimeError(problem.message) from None
        except (PySparkException, Py4JError):
            if not job.retry.stopping.is_set():
                raise
            # A short text: Spark searches all of it with a pattern that overflows the stack.
            raise RuntimeError("the job was stopped during a batch") from None

    return deliver
