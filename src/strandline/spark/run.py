"""How a pipeline travels: compile, translate to Spark, start, return a job. The path on one page."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from strandline.errors import CheckpointMismatch, SetupError, StrandlineError
from strandline.plan.compile import groups_for, to_stages
from strandline.plan.nodes import Root
from strandline.plan.stages import Stages
from strandline.spark.budget import FailureBudget
from strandline.spark.checkpoint import Checkpoint
from strandline.spark.checks import require_machine
from strandline.spark.deliver import Deliverer
from strandline.spark.heartbeat import heartbeat
from strandline.spark.job import Job, Listener
from strandline.spark.observer import Observer
from strandline.spark.opening import open_sinks
from strandline.spark.ports import Followed, Listed
from strandline.spark.session import OF_RECORDS, require_classes, require_rocksdb, start_session
from strandline.spark.translate import translate


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
    settings: Mapping[str, str] | None = None,
    observer: Observer | None = None,
) -> Job:
    """Starts a pipeline. `checkpoint` is the job's folder: a run that finds one there goes on where it ended.

    A batch starts as soon as the one before it has ended, or `every` so often; with `available_now` the job reads what
    is there and ends, its windows still open for the next run. When no data comes, a heartbeat still moves the clock:
    for idle partitions, for triggers that go by processing time, for time to live. A `failure_budget` says how much of
    the input may be dead letters before the job stops. `key_groups` bound how far a job can be spread, for as long as
    it lives: two for each core, unless said. `settings` go before Strandline's own where it starts Spark; a session
    that is given is left as it is. An `observer` hears of all that happens.
    """
    if spark is not None and settings:
        raise SetupError("a session that runs already takes no settings", hint="set them where the session is made")
    folder = Path(checkpoint).absolute()
    home = Checkpoint(folder)
    stages = to_stages(root, _groups(home, spark, key_groups))
    if spark is None:
        require_machine(folder)
    else:
        require_rocksdb(spark)
    identity = home.claim(root, stages)
    for place, scan in enumerate(stages.scans):
        if isinstance(scan.source, Followed):
            scan.source.refuse_lost(home.latest_offsets(place))
    if home.has_ended:
        return Job(home, listener, complete=True)
    opened = open_sinks(stages, identity.lineage)
    needed = sorted({name for scan in stages.scans if (name := getattr(scan.source, "needs", None))})
    if spark is not None:
        require_classes(spark, needed)
    wanted = session_settings(stages) | dict(settings or {})
    session = spark or start_session("strandline", log=folder / "spark.log", overrides=wanted, jars=bool(needed))
    job = Job(home, listener, available_now=available_now, budget=failure_budget, observer=observer)
    measures = observer is not None
    deliverer = Deliverer(session, stages, opened, home, identity, job.delivered, job.patience, measures=measures)
    ticks = heartbeat(session, every=heartbeat_seconds, drain=home.drain)
    writer = translate(stages, session, ticks).writeStream.foreachBatch(_kept(deliverer, job))
    writer = writer.option("checkpointLocation", str(home.spark))
    writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=every)
    return job.attach(writer.start(), opened, lambda: _backlog(session, stages, home))


def session_settings(stages: Stages) -> dict[str, str]:
    """What this job wants of a session of ours, beside what every one has."""
    return dict(OF_RECORDS) if any(getattr(scan.source, "decoder", None) for scan in stages.scans) else {}


def _backlog(spark: SparkSession, stages: Stages, home: Checkpoint) -> dict[str, Any]:
    """What waits in the sources that are lists of files."""
    newest = home.newest()
    found = {}
    for place, scan in enumerate(stages.scans):
        if isinstance(scan.source, Listed):
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


def _kept(deliverer: Deliverer, job: Job) -> Callable[[DataFrame, int], None]:
    """Spark turns errors of a callback into long texts; the job keeps the error itself."""

    def deliver(frame: DataFrame, batch: int) -> None:
        try:
            deliverer(frame, batch)
        except StrandlineError as problem:
            job.failed(problem)
            raise RuntimeError(problem.message) from None

    return deliver
