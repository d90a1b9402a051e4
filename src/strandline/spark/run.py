"""Run a pipeline: compile, translate to Spark, start, return a job."""

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from strandline.checkpoint.examine import require_sound
from strandline.checkpoint.file_copies import with_copies
from strandline.checkpoint.job_folder import Checkpoint, Identity
from strandline.errors import (
    CheckpointMismatch,
    InvalidArgument,
    RunError,
    SetupError,
    StateError,
    StrandlineError,
    hide_internal_columns,
)
from strandline.execution.lookups.pins import FOLDER
from strandline.execution.prepare import Seam
from strandline.execution.task_writes import writers_of
from strandline.kernel.panics import POLARS_FAILURE, message_of
from strandline.model.arguments import checked
from strandline.model.elements import ZERO, Length, duration
from strandline.plan.arrival_order import order_dependence
from strandline.plan.compile import groups_for, to_stages
from strandline.plan.endpoints import Source
from strandline.plan.nodes import Root, fingerprint
from strandline.plan.stages import Stages
from strandline.ports.sinks import OpenSink
from strandline.ports.sources import FileListSource, NamedInputs, TopicSource
from strandline.spark.backfill import Backfill, Cut, Phase, begin, enter_live_phase, in_phase, requested, seam_of
from strandline.spark.bounded_run import Query, all_at_once
from strandline.spark.check_lookups import check_lookups
from strandline.spark.delivery.dead_letter_limit import FailureBudget
from strandline.spark.delivery.deliver import Deliverer, Ranges
from strandline.spark.delivery.open_sinks import close_sinks, open_sinks
from strandline.spark.error_messages import innermost, translate_error
from strandline.spark.job import Job, Listener
from strandline.spark.job_observer import Observer
from strandline.spark.launch.background import BackgroundTask
from strandline.spark.launch.find_java import Java
from strandline.spark.launch.preflight import local_folder, require_machine
from strandline.spark.launch.session import (
    WITHOUT_ROWS,
    begin_session,
    is_submitted,
    of_records,
    require_classes,
    require_rocksdb,
    require_session,
    submitted_session,
)
from strandline.spark.patches.table import ANY_SESSION, apply_patches
from strandline.spark.portable_functions import require_portable
from strandline.spark.resume import refuse_lost, refuse_unread
from strandline.spark.sources.heartbeat import heartbeat
from strandline.spark.sources.log_watch import LogWatch
from strandline.spark.sources.read_in_task import passes_no_row
from strandline.spark.sources.source_extent import (
    Extent,
    SingleRange,
    Way,
    ends_of,
    is_bounded,
    limited_to,
    stored_extent,
)
from strandline.spark.task_failures import task_failures
from strandline.spark.translate import translate

Deliver = Callable[[DataFrame, int], None]

_INTERVAL: Final = re.compile(r"\d+ (?:millisecond|second|minute|hour|day)s?")
_log: Final = logging.getLogger("strandline")


@checked
def run(  # noqa: PLR0913 - options of a job, each with its default
    root: Root,
    spark: Any = None,
    *,
    checkpoint: str | Path,
    listener: Listener | None = None,
    every: Length = "0 seconds",
    available_now: bool = False,
    heartbeat_seconds: float = 2,
    failure_budget: FailureBudget | None = None,
    key_groups: int | None = None,
    by_arrival: bool = False,
    backfill: Source | None = None,
    then: Source | None = None,
    at: Cut | None = None,
    settings: Mapping[str, str] | None = None,
    start_within: Length | None = None,
    observer: Observer | None = None,
) -> Job:
    """Start a pipeline. `checkpoint` is the job's folder; a run goes on where the last one in that folder ended.

    A batch starts as soon as the previous one has ended, or `every` so often. With `available_now` the job reads
    what is there and ends; its windows stay open for the next run. Without data a heartbeat advances processing
    time, for idle partitions, processing-time triggers and time to live; it is slower while none of them waits.
    `failure_budget` limits the share of dead letters before the job stops. `key_groups` limits the parallelism of the
    job for its life; the default is two a core. `settings` override Strandline's own where it starts Spark. A session
    that is given is not changed, and a program started by spark-submit gets a session of that cluster. With
    `start_within`, "2m", the job waits that long for the services that it needs before its first batch, sinks included,
    and then fails. Without it a broker is waited for as long as it takes, and a sink that is unreachable ends the
    start. `observer` receives the events of the job.

    If all sources are bounded, the job ends by itself with every window closed. It runs as one batch if no result
    depends on arrival order, so that nothing is late; `by_arrival` keeps the arrival order. With `backfill`, history is
    read before the topic of the pipeline (`then` names it if there are several sources). Records before the cut `at`
    come from history, the others from the topic. The cut is an event time, or offsets by partition.
    """
    folder, pause = local_folder(checkpoint), _pause(every, heartbeat_seconds)
    spark = _given_session(spark, settings)
    backfill_request = requested(root, backfill, then, at)
    root = root if backfill_request is None else backfill_request.over(root)
    home = Checkpoint(folder)
    require_sound(folder)
    root = _as_stored(home, root)
    stages = to_stages(root, _groups(home, spark, key_groups))
    require_portable(root)
    java = require_machine(folder) if spark is None else None
    if spark is not None:
        require_rocksdb(spark)
    bounded = backfill_request is None and is_bounded(stages)
    limit = None if start_within is None else duration(start_within)
    if by_arrival and not bounded:
        raise SetupError("by_arrival is for input that ends", hint="leave it out: a stream is played as it arrives")
    identity = home.claim(root, stages)
    if home.has_ended:
        if home.drain.exists() and not bounded:
            refuse_unread(home, stages)
        return Job(home, listener, complete=True)
    job = Job(home, listener, available_now=available_now, budget=failure_budget, observer=observer, start_within=limit)
    opened: tuple[OpenSink, ...] = ()
    try:
        job.begin(stages)
        _refuse_missing(home, stages)
        check_lookups(stages, job.retry if limit is not None else None)
        refuse_lost(home, stages, job.retry)
        logs = job.watch_logs(LogWatch.begun(home, stages))
        session, opened = _session_and_sinks(stages, identity, spark, settings, java, job, waits=limit is not None)
        job.watch_tasks(task_failures(session, job.groups))
        runner = _Run(
            session, stages, home, identity, opened, job, heartbeat_seconds, pause, logs, measures=observer is not None
        )
        job.hold()
        if backfill_request is not None:
            return runner.fill(backfill_request, available_now=available_now)
        if bounded:
            return runner.to_the_end(by_arrival=by_arrival)
        return job.attach(runner.stream(available_now=available_now), opened, runner.backlog)
    except BaseException as problem:
        instead = _abandon(job, opened, problem)
        if instead is not None:
            raise instead from problem
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
    logs: LogWatch
    measures: bool = False

    def stream(self, *, available_now: bool, seam: Seam | None = None) -> StreamingQuery:
        drain, due, every, live = self.home.drain, self.home.due, self.heartbeat_seconds, seam is not None
        # What an earlier run wrote is over.
        due.unlink(missing_ok=True)
        # Spark starts a Python process for the heartbeat. Sources are set up at the same time.
        ticks = BackgroundTask(lambda: heartbeat(self.session, every=every, drain=drain, due=due, live=live))
        carried = translate(self.stages, self.session, ticks.result, seam=seam, writers=writers_of(self.opened))
        self.home.keep_clock()
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
        deliver = self._deliver(SingleRange(self.home, extent, self.stages, self.logs))
        frame = all_at_once(self.stages, extent, self.session, writers_of(self.opened))
        return Query(
            self.session, lambda: deliver(frame, 0), self.identity.lineage, ends_of(extent, self.stages)
        ).start()

    @property
    def _pins(self) -> Path | None:
        """Return the folder of pinned answers; None if no lookup pins them."""
        return self.home.folder / FOLDER if any(each.pin for each in self.stages.lookups) else None

    def backlog(self) -> dict[str, Any]:
        return _backlog(self.session, self.stages, self.home)

    def _deliver(self, ranges: Ranges, due: Path | None = None) -> Deliver:
        deliverer = Deliverer(
            self.session, self.stages, self.opened, ranges, self.identity, self.job.delivered, self.job.retry,
            measures=self.measures, ends=self.job.ends, logs=self.logs, due_file=due, pins=self._pins,
        )  # fmt: skip
        return _keeping_errors(deliverer, self.job)


def _abandon(job: Job, opened: tuple[OpenSink, ...], problem: BaseException) -> StrandlineError | None:
    """Undo a start that failed. Return the error to raise instead, such as one of Spark in the user's words."""
    job.retry.stopping.set()
    close_sinks(opened)
    instead = job.abandon(problem)
    if instead is not None or not isinstance(problem, PySparkException | Py4JError):
        return instead
    detail = hide_internal_columns(innermost(str(problem)))
    return translate_error(problem) or RunError("Spark could not start the job", detail=detail, hint="see spark.log")


def _refuse_missing(home: Checkpoint, stages: Stages) -> None:
    """Refuse topics that do not exist, before Spark starts, if the job has not read them yet."""
    for place, scan in enumerate(stages.scans):
        if isinstance(scan.source, NamedInputs) and not home.latest_offsets(place):
            scan.source.refuse_missing()


def _pause(every: Length, heartbeat_seconds: float) -> str:
    """Return the time between batches in Spark's words, from a length of time or from those words."""
    if heartbeat_seconds <= 0:
        raise InvalidArgument(f"heartbeat_seconds is {heartbeat_seconds}", hint="give a number above 0")
    if isinstance(every, str) and _INTERVAL.fullmatch(every.strip()):
        return every.strip()
    length = duration(every)
    if length < ZERO:
        raise InvalidArgument(f"every is {every}", hint='give a length of time such as "10s", or leave it out')
    return f"{length.ms} milliseconds"


def _as_stored(home: Checkpoint, root: Root) -> Root:
    """Return the pipeline as the folder holds it; say so if that is not what it means today."""
    stored = home.as_stored(root)
    if fingerprint(stored) != fingerprint(root):
        _log.warning(
            "the job in %s was made when a keyed step over panes inherited neither retractions nor allowed lateness, "
            "and goes on like that; a new folder, or a savepoint restored with a migration, gets today's defaults",
            home.folder,
        )
    return stored


def _given_session(spark: Any, settings: Mapping[str, str] | None) -> SparkSession | None:
    """Return the given session, or that of spark-submit's cluster; None if one must be started."""
    if spark is not None:
        require_session(spark)
    if spark is not None and settings:
        raise SetupError("a session that runs already takes no settings", hint="set them where the session is made")
    return submitted_session(settings) if spark is None and is_submitted() else spark


def _session_and_sinks(
    stages: Stages,
    identity: Identity,
    spark: SparkSession | None,
    settings: Mapping[str, str] | None,
    java: Java | None,
    job: Job,
    *,
    waits: bool,
) -> tuple[SparkSession, tuple[OpenSink, ...]]:
    """Open the sinks while Spark starts, if it is not given. With `waits`, unreachable sinks are waited for."""
    needed = sorted({name for scan in stages.scans if (name := getattr(scan.source, "needs", None))})
    retry = job.retry if waits else None
    if spark is not None:
        require_classes(spark, needed)
        apply_patches(spark, names=ANY_SESSION)
        return spark, open_sinks(stages, identity.lineage, retry)
    wanted = session_settings(stages) | dict(settings or {})
    log = job.folder / "spark.log"
    starting = begin_session("strandline", log=log, overrides=wanted, jars=bool(needed), java=java)
    try:
        opened = open_sinks(stages, identity.lineage, retry)
    except BaseException:
        starting.cancel()
        raise
    try:
        return starting.wait(), opened
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
            job.refuse_batch_after_end()
            with job.during_batch():
                deliverer(frame, batch)
        except StrandlineError as problem:
            job.failed(problem)
            raise RuntimeError(problem.message) from None
        except POLARS_FAILURE as problem:
            failed = StateError(
                f"batch {batch} cannot be delivered",
                detail=message_of(problem),
                hint="look at the types and the greatest values of the rows' columns",
            )
            job.failed(failed)
            raise RuntimeError(failed.message) from None
        except (PySparkException, Py4JError):
            if not job.retry.stopping.is_set():
                raise
            # A short text: Spark searches all of it with a pattern that overflows the stack.
            raise RuntimeError("the job was stopped during a batch") from None

    return deliver
