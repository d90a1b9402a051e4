"""foreachBatch: gather what the key groups say, check that nobody is missing, and deliver it as each sink was asked to.

The order of a batch, with the points at which a test may kill it (`crash.py`):

    C6   the range is made durable   C7   the batch is played, everyone is counted; then sink by sink, in the order in
    which they were written: C9 … C10 rows and entry   C11   sources hear of it, the job notes it   C12

A batch that comes again is skipped by the sinks that hold it and taken by the others, so they recover together.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

import polars as pl
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from strandline.checkpoint.job_folder import Identity, Noted
from strandline.errors import RegistryDown, RunError, SinkError, SinkUnavailable, StateError
from strandline.kernel.blocks.block import unpack
from strandline.kernel.dead_letters import Reasons, reasons_of
from strandline.kernel.dead_letters import complete_envelopes as seal_letters
from strandline.kernel.output import Counts, Output
from strandline.kernel.watermarks import FOREVER, NEVER, Progress
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Scan, Stages
from strandline.ports.crash_points import crash_point
from strandline.ports.ledger import LedgerEntry, Recorded, Sealed, Written, output_digest
from strandline.ports.protocols import Followed, Listed, ListedFile, OpenSink, Stamp
from strandline.spark.batch_properties import Batch, called, tell
from strandline.spark.delivery.gather_output import Gathered, StepOutput, gather
from strandline.spark.tasks.block_addresses import place
from strandline.spark.tasks.partition_codes import numbered
from strandline.spark.tasks.task_metrics import Measured
from strandline.spark.tasks.task_writes import sweep

SHORTEST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 30.0

LISTS: Final = 10
"""So many lists of files are looked at again: one that is still being written changes soon."""

AWAY: Final = (SinkUnavailable, RegistryDown)
"""Whom a batch waits for."""

_OF_TASKS: Final = {kind.__name__: kind for kind in (RegistryDown, SinkUnavailable, SinkError)}
"""What tasks may raise: for the first two a batch waits."""

Done = TypeVar("Done")

_log: Final = logging.getLogger("strandline")


@dataclass(frozen=True, slots=True)
class Delivered:
    """A batch that is in its sinks: what it said, how far each keyed step is, where the sources stood."""

    batch: int
    output: Output
    """What the first sink got."""
    offsets: dict[str, Any]
    repeated: bool
    steps: Mapping[int, StepOutput] = field(default_factory=dict)
    counts: Mapping[str, Counts] = field(default_factory=dict)
    """Of each keyed step, and of each output that elements go to straight from a source."""
    reasons: Reasons = field(default_factory=dict)
    """Why there are dead letters, over all sinks."""
    refused: int = 0
    """Rows that a sink would not take, now among its dead letters."""
    given_up: tuple[str, ...] = ()
    """Sinks that were asked for the batch at most once, and did not answer."""
    at: int = 0
    """When all sinks had it, by the clock on the wall, in milliseconds."""
    outputs: tuple[Output, ...] = ()
    """What each sink got."""
    took: Mapping[str, float] = field(default_factory=dict)
    """Seconds that it was played, and that sinks took."""
    measured: Measured = field(default_factory=Measured)


@dataclass(slots=True)
class Patience:
    """How a batch waits for a sink or a registry that is out of reach, who hears of it, and what ends the wait."""

    heard: Callable[[RunError | None], None] = lambda _: None
    stopping: threading.Event = field(default_factory=threading.Event)
    shortest: float = SHORTEST_WAIT
    longest: float = LONGEST_WAIT

    def until_done(self, act: Callable[[], Done]) -> Done:
        """Does it, again and again, each time after a longer wait, until it succeeds or the job is stopped."""
        wait = self.shortest
        while True:
            try:
                done = act()
            except AWAY as problem:
                self.heard(problem)
                _log.warning("the batch waits: %s", problem)
                if self.stopping.wait(wait):
                    raise
                wait = min(2 * wait, self.longest)
            else:
                self.heard(None)
                return done


def deliver(
    sink: OpenSink, delivery: Delivery, output: Output, entry: LedgerEntry, patience: Patience
) -> Written | None:
    """One batch to one sink, as it was asked to; None if it was given up, which only `at_most_once` allows."""
    match delivery:
        case Delivery.EXACTLY_ONCE:
            return patience.until_done(lambda: sink.commit(output, entry))
        case Delivery.AT_LEAST_ONCE:
            return patience.until_done(lambda: sink.write(output, entry))
        case Delivery.AT_MOST_ONCE:
            marked = patience.until_done(lambda: sink.mark(output, entry))
            crash_point("marked")
            try:
                return sink.write(output, entry) if marked.fresh else marked
            except SinkUnavailable:
                # Whether the rows arrived is unknown; to send them again might be to send them twice.
                return None


class Ranges(Protocol):
    """What a delivery asks of the checkpoint: the range of a batch, made durable, and what is known of it."""

    def numbered(self, batch: int) -> int: ...

    def seal(self, batch: int) -> Sealed: ...

    def clock(self, batch: int) -> int: ...

    def offsets(self, batch: int, source: int = 0) -> dict[str, Any] | None: ...

    def listed(self, batch: int, source: int, lists: int | None = None) -> dict[int, tuple[ListedFile, ...]]: ...

    def listed_in(self, batch: int, source: int) -> tuple[ListedFile, ...]: ...

    def noted(self, batch: int) -> Noted | None: ...

    def note(self, batch: int, watermark: int, steps: Mapping[int, int], epochs: tuple[int, ...] = ()) -> None: ...

    def refuse_changed(self, spark: SparkSession) -> None:
        """Raises if what was read is not what the range says."""
        ...


class Deliverer:
    """Carries batches from Spark to the sinks, one batch after the other, in each batch one sink after the other."""

    def __init__(  # noqa: PLR0913 - whom it works with
        self,
        spark: SparkSession,
        stages: Stages,
        sinks: tuple[OpenSink, ...],
        checkpoint: Ranges,
        identity: Identity,
        listener: Callable[[Delivered], None],
        patience: Patience | None = None,
        *,
        measures: bool = False,
    ) -> None:
        self._measures = measures
        self._spark, self._stages, self._sinks = spark, stages, sinks
        self._checkpoint, self._lineage, self._listener = checkpoint, identity.lineage, listener
        self._patience = patience or Patience()
        self._epochs = tuple(self._claimed(sink) for sink in sinks)
        self._empty = {number for number in identity.starting if self._latest(sinks[number]) is None}
        """Sinks that join a job which has a past, and hold nothing of it."""
        self._steps: dict[int, StepOutput] = {}
        self._ended: dict[int, frozenset[str]] = {}

    def _claimed(self, sink: OpenSink) -> int:
        return self._patience.until_done(lambda: sink.claim(self._lineage))

    def _latest(self, sink: OpenSink) -> Recorded | None:
        return self._patience.until_done(lambda: sink.latest(self._lineage))

    def __call__(self, frame: DataFrame, in_spark: int) -> None:
        crash_point("C6")
        batch = self._checkpoint.numbered(in_spark)
        # What a sink will hold may not outlive the range it came from.
        sealed = self._checkpoint.seal(batch)
        crash_point("C7")
        positions = self._positions(batch)
        partitions = {scan.number: each.partitions_at(at) for scan, each, at in positions}
        clock, horizons = self._checkpoint.clock(batch), self._horizons(batch)
        heads = self._heads() if self._measures else {}
        stamps = tuple(Stamp(self._lineage, epoch, batch) for epoch in self._epochs)
        told = Batch(clock, horizons, partitions, self._files(batch), self._measures, heads, stamps)
        tell(self._spark.sparkContext, told)
        begun = time.perf_counter()
        gathered = self._patience.until_done(lambda: self._gathered(frame, stamps))
        played = time.perf_counter()
        called(self._spark.sparkContext)
        for name, counts in gathered.counts.items():
            if counts.missing:
                raise StateError(
                    f"batch {batch}: {counts.missing} elements of {name} are unaccounted for", detail=str(counts)
                )
        self._refuse_gone(batch)
        self._steps |= gathered.steps
        progress, rows = self._progress(gathered), sum(step.rows for step in self._steps.values())
        outputs = [self._addressed(gathered.output(each, progress, rows), batch) for each in range(len(self._sinks))]
        written = [self._to_sink(number, output, batch, sealed) for number, output in enumerate(outputs)]
        took = {"play": played - begun, "deliver": time.perf_counter() - played}
        crash_point("C11")
        for _, source, at in positions:
            source.delivered(f"strandline-{self._lineage}", at)
        watermarks = {number: step.progress.watermark for number, step in self._steps.items()}
        self._checkpoint.note(batch, progress.watermark, watermarks, self._epochs)
        self._listener(self._delivered(batch, outputs, gathered, written, took))
        crash_point("C12")

    def _gathered(self, frame: DataFrame, stamps: Sequence[Stamp]) -> Gathered:
        try:
            return _gather(frame)
        except AWAY:
            sweep(self._sinks, stamps)
            raise

    def _addressed(self, output: Output, batch: int) -> Output:
        """Dead letters get the rest of their envelope here: whose they are, and the batch's own clock."""
        if output.dead is None:
            return output
        return replace(output, dead=seal_letters(output.dead, self._lineage, self._checkpoint.clock(batch)))

    def _to_sink(self, number: int, output: Output, batch: int, sealed: Sealed) -> Written | None:
        asked = self._stages.outputs[number]
        said = output_digest(output) if asked.delivery is Delivery.EXACTLY_ONCE else ""
        epoch = self._epochs[number]
        starts = None if number in self._empty else sealed.starts
        entry = LedgerEntry(self._lineage, epoch, batch, sealed.digest, starts, sealed.ends, said)
        written = deliver(self._sinks[number], asked.delivery, output, entry, self._patience)
        self._empty.discard(number)
        if written is None:
            _log.warning(
                "batch %s was given up: %s does not answer, and was to have it at most once", batch, asked.sink.name
            )
        elif written.differs:
            _log.warning(
                "batch %s was played again with another result than %s holds: a function of the pipeline "
                "does not give the same for the same",
                batch,
                asked.sink.name,
            )
        return written

    def _delivered(
        self,
        batch: int,
        outputs: list[Output],
        gathered: Gathered,
        written: list[Written | None],
        took: Mapping[str, float],
    ) -> Delivered:
        named = zip(self._stages.outputs, written, strict=True)
        return Delivered(
            batch,
            outputs[0],
            self._checkpoint.offsets(batch) or {},
            repeated=not any(each is None or each.fresh for each in written),
            steps=dict(self._steps),
            counts={name: each.of_step for name, each in gathered.counts.items()},
            reasons=reasons_of(output.dead for output in outputs if output.dead is not None),
            refused=sum(each.refused for each in written if each is not None),
            given_up=tuple(asked.sink.name for asked, each in named if each is None),
            at=time.time_ns() // 1_000_000,
            outputs=tuple(outputs),
            took=took,
            measured=gathered.measured,
        )

    def _positions(self, batch: int) -> list[tuple[Scan, Followed, Any]]:
        """Where the sources that can be followed stand at the end of this batch."""
        found: list[tuple[Scan, Followed, Any]] = []
        for number, scan in enumerate(self._stages.scans):
            at = self._checkpoint.offsets(batch, number)
            if isinstance(scan.source, Followed) and at is not None:
                found.append((scan, scan.source, at))
        return found

    def _refuse_gone(self, batch: int) -> None:
        """Spark passes over files that have vanished since it listed them, and says nothing."""
        for number, scan in enumerate(self._stages.scans):
            if isinstance(scan.source, Listed):
                given = dict.fromkeys(self._checkpoint.listed_in(batch, number))
                lists = self._checkpoint.listed(batch, number, LISTS).values()
                read = [file for files in lists for file in files if file not in given]
                scan.source.refuse_gone(tuple(given), read, self._spark)
        self._checkpoint.refuse_changed(self._spark)

    def _files(self, batch: int) -> dict[int, str]:
        """The files of this batch, by the numbers under which their names cross."""
        listed = [number for number, scan in enumerate(self._stages.scans) if isinstance(scan.source, Listed)]
        lists = [self._checkpoint.listed_in(batch, number) for number in listed]
        return numbered(file.path for files in lists for file in files)

    def _horizons(self, batch: int) -> dict[int, int]:
        """The watermark of each step before this batch, where it is known: after a start, only what was noted."""
        if self._steps:
            return {number: step.progress.watermark for number, step in self._steps.items()}
        noted = self._checkpoint.noted(batch - 1)
        return {} if noted is None else dict(noted.steps)

    def _heads(self) -> dict[int, int]:
        """For each step the event time that the last of its partitions has come to."""
        found = {}
        for number, step in self._steps.items():
            of = [step.progress, *step.progress.inputs.values()]
            reached = [each.highest for one in of for each in one.partitions.values() if each.counts]
            known = [at for at in reached if at != NEVER]
            if known:
                found[number] = min(known)
        return found

    def _progress(self, gathered: Gathered) -> Progress:
        """How far the whole job is: as far as the last of its steps, and of its sources where nothing is kept."""
        if not self._stages.steps:
            return Progress(FOREVER if self._has_ended(gathered) else NEVER, gathered.clock)
        known = [self._steps.get(step.number, StepOutput()).progress for step in self._stages.steps]
        partitions = {name: each for progress in known for name, each in progress.partitions.items()}
        inputs = {name: each for progress in known for name, each in progress.inputs.items()}
        return Progress(min(progress.watermark for progress in known), gathered.clock, partitions, inputs)

    def _has_ended(self, gathered: Gathered) -> bool:
        for scan, ended in gathered.ended.items():
            self._ended[scan] = self._ended.get(scan, frozenset()) | ended
        expected = {scan.number: frozenset(scan.source.partitions) for scan in self._stages.scans}
        over = all(names and names <= self._ended.get(number, frozenset()) for number, names in expected.items())
        return gathered.drained or over


def _gather(frame: DataFrame) -> Gathered:
    """One action over the whole frame: a second would play the batch again."""
    try:
        carried = pl.DataFrame(frame.toArrow()).select("kg", "block").rows()
    except (PySparkException, Py4JJavaError) as problem:
        raise raised_by_a_task(problem) from None
    return gather(unpack(data, f"address {to}, output") for to, data in sorted(carried, key=lambda row: place(row[0])))


def raised_by_a_task(problem: Exception) -> Exception:
    """The error of a task that is ours, from the text that Spark makes of it; else what Spark says."""
    found = re.search(rf"strandline\.errors\.({'|'.join(_OF_TASKS)}): (.+)", str(problem))
    return problem if found is None else _OF_TASKS[found[1]](found[2])
