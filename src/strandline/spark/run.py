"""How a pipeline travels: compile, translate to Spark, start, return a job. The path on one page."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from strandline.errors import StrandlineError
from strandline.kernel.step import Ask
from strandline.kernel.watermarks import FOREVER
from strandline.plan.compile import to_stages
from strandline.plan.explain import explain
from strandline.plan.nodes import Write
from strandline.plan.stages import Stages
from strandline.spark.checkpoint import Checkpoint
from strandline.spark.checks import require_machine
from strandline.spark.deliver import Deliverer
from strandline.spark.heartbeat import heartbeat
from strandline.spark.job import Job, Listener
from strandline.spark.keyed_step import KeyGroupProcessor
from strandline.spark.ports import Recorded, SparkSink, SparkSource
from strandline.spark.prepare import CARRIER, prepare_task
from strandline.spark.session import require_rocksdb, start_session


def run(
    root: Write,
    spark: SparkSession | None = None,
    *,
    checkpoint: str | Path,
    listener: Listener | None = None,
    every: str = "0 seconds",
    heartbeat_seconds: float = 2,
) -> Job:
    """Starts a pipeline. `checkpoint` is the job's folder: a run that finds one there goes on where it ended.

    A batch starts as soon as the one before it has ended, or `every` so often. When no data comes, a heartbeat still
    moves the clock: for idle partitions, for triggers that go by processing time, for time to live.
    """
    stages = to_stages(root)
    folder = Path(checkpoint).absolute()
    if spark is None:
        require_machine(folder)
    else:
        require_rocksdb(spark)
    home = Checkpoint(folder)
    identity = home.claim(stages.fingerprint, explain(root))
    sink: SparkSink = stages.deliver.sink  # type: ignore[assignment]
    opened = sink.open(stages)
    if _has_ended(home, opened.latest(identity.lineage)):
        opened.close()
        return Job(home, listener, complete=True)
    session = spark or start_session("strandline", log=folder / "spark.log")
    job = Job(home, listener)
    deliverer = Deliverer(session, opened, home, identity.lineage, job.delivered)
    query = (
        to_dataframe(stages, session, heartbeat(session, every=heartbeat_seconds, drain=home.drain))
        .writeStream.foreachBatch(_kept(deliverer, job))
        .option("checkpointLocation", str(home.spark))
        .trigger(processingTime=every)
        .start()
    )
    return job.attach(query, opened)


def _has_ended(home: Checkpoint, latest: Recorded | None) -> bool:
    """Whether an earlier run has already closed every window, and Spark knows of it."""
    return latest is not None and latest.watermark == FOREVER and home.is_committed(latest.batch)


def to_dataframe(stages: Stages, spark: SparkSession, ticks: DataFrame) -> DataFrame:
    """The stages as Spark carries them: records and ticks, blocks by key group, packed output."""
    source: SparkSource = stages.scan.source  # type: ignore[assignment]
    keyed = stages.keyed
    ask = Ask(keyed.keys, keyed.step, keyed.watermark, keyed.partitions)
    # The clock is the batch's own timestamp, which Spark keeps in its offset log and gives again on replay.
    records = source.stream(spark).unionByName(ticks).withColumn("clock", F.current_timestamp())
    prepare = prepare_task(stages.prepare, stages.scan.event_time, source.decoder)
    prepared = records.mapInArrow(prepare, CARRIER)
    return prepared.groupBy("kg").transformWithState(KeyGroupProcessor(lambda _: ask), CARRIER, "Append", "None")


def _kept(deliverer: Deliverer, job: Job) -> Callable[[DataFrame, int], None]:
    """Spark turns errors of a callback into long texts; the job keeps the error itself."""

    def deliver(frame: DataFrame, batch: int) -> None:
        try:
            deliverer(frame, batch)
        except StrandlineError as problem:
            job.failed(problem)
            raise RuntimeError(problem.message) from None

    return deliver
