"""Deliver a batch in foreachBatch: gather the output of all key groups, check the counts, write to each sink.

The order of a batch, with the points at which tests kill it (`ports/crash_points.py`):

    C6    the range of offsets is made durable
    C7    the batch runs, elements are counted; then sink by sink, in the order in which they were declared:
          C9 … C10  rows and ledger entry
    C11   sources commit offsets, the job's folder gets the watermark
    C12

Sinks that hold a repeated batch skip it, and the others take it. So all sinks recover together.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import polars as pl
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from strandline.checkpoint.job_folder import Identity, Noted
from strandline.errors import RegistryDown, RunError, SinkError, SinkUnavailable, SourceUnavailable, StateError
from strandline.execution.batch import Batch
from strandline.execution.block_addresses import place
from strandline.execution.gather_output import Gathered, StepOutput, gather
from strandline.execution.task_metrics import Measured
from strandline.execution.task_writes import sweep
from strandline.kernel.blocks.block import unpack
from strandline.kernel.dead_letters import Reasons, reasons_of
from strandline.kernel.dead_letters import complete_envelopes as seal_letters
from strandline.kernel.output import Counts, Output
from strandline.kernel.watermarks import FOREVER, NEVER, Progress
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Scan, Stages
from strandline.ports.crash_points import crash_point
from strandline.ports.ledger import LedgerEntry, Recorded, Sealed, Written, output_digest
from strandline.ports.sinks import OpenSink, Stamp
from strandline.ports.sources import CommittingSource, FileListSource, KnownEnds, ListedFile, LogSource, Position
from strandline.ports.waiting import Waits
from strandline.redaction import logger
from strandline.spark.batch_properties import name_jobs, send
from strandline.spark.delivery.next_tick import next_due, write_due
from strandline.spark.delivery.redact_dead_letters import without_secrets
from strandline.spark.sources.log_watch import LogWatch
from strandline.spark.tasks.partition_codes import numbered

SHORTEST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 30.0

LISTS: Final = 10
"""Lists of files that are checked again: a file that was read while it was written changes soon."""

UNREACHABLE: Final = (SinkUnavailable, RegistryDown, SourceUnavailable)
"""Errors after which a batch is tried again."""

TASK_SERVICE: Final = "a service that tasks use"
"""A registry, or a sink that tasks write to."""

_TASK_ERRORS: Final = {kind.__name__: kind for kind in (RegistryDown, SinkUnavailable, SinkError, StateError)}
"""Errors that tasks raise. After the first two a batch is tried again."""

Done = TypeVar("Done")

_log: Final = logger("strandline")


@dataclass(frozen=True, slots=True)
class Delivered:
    """A batch that all sinks hold: its output, the progress of each keyed step, the offsets of the sources."""

    batch: int
    output: Output
    """The output of the first sink."""
    offsets: dict[str, Any]
    repeated: bool
    steps: Mapping[int, StepOutput] = field(default_factory=dict)
    counts: Mapping[str, Counts] = field(default_factory=dict)
    """For each keyed step, and for each output that elements reach without one."""
    reasons: Reasons = field(default_factory=dict)
    """The reasons of dead letters, over all sinks."""
    refused: int = 0
    """Rows that sinks rejected, now dead letters."""
    given_up: tuple[str, ...] = ()
    """At-most-once sinks that did not answer."""
    at: int = 0
    """When all sinks held it, by the wall clock, in milliseconds."""
    outputs: tuple[Output, ...] = ()
    """The output of each sink."""
    took: Mapping[str, float] = field(default_factory=dict)
    """Seconds for running the batch, and for the sinks."""
    measured: Measured = field(default_factory=Measured)
    positions: tuple[Position, ...] = ()
    """The position in each partition of a topic and the partition's end, as far as the broker has told it."""


@dataclass(slots=True)
class Retry:
    """Retries while a sink or a registry is unreachable, with growing pauses, until the job is stopped."""

    report: Callable[[RunError | None], None] = lambda _: None
    stopping: threading.Event = field(default_factory=threading.Event)
    shortest: float = SHORTEST_WAIT
    longest: float = LONGEST_WAIT
    waits: Waits = field(default_factory=Waits)

    def until_done(self, act: Callable[[], Done], what: str = "a service") -> Done:
        """Call `act` until it succeeds; raise its error when the job is stopped. `what` names what is waited for."""
        wait = self.shortest
        while True:
            try:
                done = act()
            except UNREACHABLE as problem:
                self.report(problem)
                self.waits.failed(what, str(problem), next_in=wait)
                if self.stopping.wait(wait):
                    raise
                wait = min(2 * wait, self.longest)
            else:
                self.report(None)
                self.waits.answered(what)
                return done


def deliver(
    sink: OpenSink, delivery: Delivery, output: Output, entry: LedgerEntry, retry: Retry, name: str = "a sink"
) -> Written | None:
    """Write one batch to one sink with its delivery guarantee. None if it was given up (at most once only)."""
    match delivery:
        case Delivery.EXACTLY_ONCE:
            return retry.until_done(lambda: sink.commit(output, entry), name)
        case Delivery.AT_LEAST_ONCE:
            return retry.until_done(lambda: sink.write(output, entry), name)
        case Delivery.AT_MOST_ONCE:
            marked = retry.until_done(lambda: sink.mark(output, entry), name)
            crash_point("marked")
            try:
                return sink.write(output, entry) if marked.fresh else marked
            except SinkUnavailable:
                # It is unknown whether the rows arrived. Sending them again could duplicate them.
                return None


class Ranges(Protocol):
    """Ranges of offsets by batch: a checkpoint, or the single range of a bounded run."""

    def numbered(self, batch: int) -> int: ...

    def seal(self, batch: int) -> Sealed: ...

    def clock(self, batch: int) -> int: ...

    def offsets(self, batch: int, source: int = 0) -> dict[str, Any] | None: ...

    def listed(self, batch: int, source: int, lists: int | None = None) -> dict[int, tuple[ListedFile, ...]]: ...

    def listed_in(self, batch: int, source: int) -> tuple[ListedFile, ...]: ...

    def noted(self, batch: int) -> Noted | None: ...

    def note(self, batch: int, watermark: int, steps: Mapping[int, int], epochs: tuple[int, ...] = ()) -> None: ...

    def refuse_changed(self, spark: SparkSession) -> None:
        """Raise if what was read differs from the range."""
        ...


class Deliverer:
    """Delivers batches one after the other, each to one sink after the other. Called by foreachBatch."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        spark: SparkSession,
        stages: Stages,
        sinks: tuple[OpenSink, ...],
        checkpoint: Ranges,
        identity: Identity,
        listener: Callable[[Delivered], None],
        retry: Retry | None = None,
        *,
        measures: bool = False,
        ends: Callable[[int], KnownEnds] = lambda _: KnownEnds(),
        logs: LogWatch | None = None,
        due_file: Path | None = None,
    ) -> None:
        self._measures, self._ends, self._logs, self._due_file = measures, ends, logs, due_file
        self._spark, self._stages, self._sinks = spark, stages, sinks
        self._checkpoint, self._lineage, self._listener = checkpoint, identity.lineage, listener
        self._retry = retry or Retry()
        self._names = tuple(output.sink.name for output in stages.outputs)
        self._epochs = tuple(map(self._claim, sinks, self._names))
        self._empty = {
            number for number in identity.starting if self._latest(sinks[number], self._names[number]) is None
        }
        """Sinks that were added to a restored job and hold nothing of it."""
        self._steps: dict[int, StepOutput] = {}
        self._ended: dict[int, frozenset[str]] = {}

    def _claim(self, sink: OpenSink, name: str) -> int:
        return self._retry.until_done(lambda: sink.claim(self._lineage), name)

    def _latest(self, sink: OpenSink, name: str) -> Recorded | None:
        return self._retry.until_done(lambda: sink.latest(self._lineage), name)

    def __call__(self, frame: DataFrame, in_spark: int) -> None:
        crash_point("C6")
        batch = self._checkpoint.numbered(in_spark)
        # The range must be durable before a sink holds rows of it.
        sealed = self._checkpoint.seal(batch)
        crash_point("C7")
        positions = self._positions(batch)
        partitions = {scan.number: each.partitions_at(at) for scan, each, at in positions}
        clock, horizons = self._checkpoint.clock(batch), self._horizons(batch)
        heads = self._heads() if self._measures else {}
        stamps = tuple(Stamp(self._lineage, epoch, batch) for epoch in self._epochs)
        facts = Batch(clock, horizons, partitions, self._files(batch), self._measures, heads, stamps)
        send(self._spark.sparkContext, facts)
        started = time.perf_counter()
        gathered = self._retry.until_done(lambda: self._collect(frame, stamps), TASK_SERVICE)
        ran = time.perf_counter()
        name_jobs(self._spark.sparkContext)
        for name, (many, counts) in gathered.unaccounted.items():
            raise StateError(f"batch {batch}: {many} elements of {name} are unaccounted for", detail=counts)
        self._refuse_gone(batch)
        before, self._steps = self._steps, {**self._steps, **gathered.steps}
        progress, rows = self._progress(gathered), sum(step.rows for step in self._steps.values())
        outputs = [
            self._with_envelopes(gathered.output(each, progress, rows), batch) for each in range(len(self._sinks))
        ]
        written = [self._to_sink(number, output, batch, sealed) for number, output in enumerate(outputs)]
        took = {"play": ran - started, "deliver": time.perf_counter() - ran}
        crash_point("C11")
        for _, source, at in positions:
            source.delivered(f"strandline-{self._lineage}", at)
        watermarks = {number: step.progress.watermark for number, step in self._steps.items()}
        self._checkpoint.note(batch, progress.watermark, watermarks, self._epochs)
        reached = self._reached(positions)
        self._listener(replace(self._delivered(batch, outputs, gathered, written, took), positions=reached))
        if self._due_file is not None:
            write_due(self._due_file, next_due(self._stages, gathered, self._steps, before))
        crash_point("C12")

    def _collect(self, frame: DataFrame, stamps: Sequence[Stamp]) -> Gathered:
        try:
            return _gather(frame)
        except UNREACHABLE:
            sweep(self._sinks, stamps)
            raise

    def _with_envelopes(self, output: Output, batch: int) -> Output:
        """Add the lineage and the clock of the batch to its dead letters."""
        if output.dead is None:
            return output
        dead = without_secrets(output.dead)
        return replace(output, dead=seal_letters(dead, self._lineage, self._checkpoint.clock(batch)))

    def _to_sink(self, number: int, output: Output, batch: int, sealed: Sealed) -> Written | None:
        wanted = self._stages.outputs[number]
        digest = output_digest(output) if wanted.delivery is Delivery.EXACTLY_ONCE else ""
        epoch = self._epochs[number]
        starts = None if number in self._empty else sealed.starts
        entry = LedgerEntry(self._lineage, epoch, batch, sealed.digest, starts, sealed.ends, digest)
        written = deliver(self._sinks[number], wanted.delivery, output, entry, self._retry, self._names[number])
        self._empty.discard(number)
        if written is None:
            _log.warning(
                "batch %s was given up: %s does not answer, and its delivery is at most once", batch, wanted.sink.name
            )
        elif written.differs:
            _log.warning(
                "batch %s was repeated with another result than %s holds: a function of the pipeline "
                "is not deterministic",
                batch,
                wanted.sink.name,
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
            given_up=tuple(wanted.sink.name for wanted, each in named if each is None),
            at=time.time_ns() // 1_000_000,
            outputs=tuple(outputs),
            took=took,
            measured=gathered.measured,
        )

    def _positions(self, batch: int) -> list[tuple[Scan, CommittingSource, Any]]:
        """Return the offsets of committing sources at the end of this batch."""
        found: list[tuple[Scan, CommittingSource, Any]] = []
        for number, scan in enumerate(self._stages.scans):
            at = self._checkpoint.offsets(batch, number)
            if isinstance(scan.source, CommittingSource) and at is not None:
                found.append((scan, scan.source, at))
        return found

    def _reached(self, positions: Sequence[tuple[Scan, CommittingSource, Any]]) -> tuple[Position, ...]:
        """Return the position in each partition; one of the same name in another input gets the input's number."""
        found: dict[str, Position] = {}
        for scan, source, at in positions:
            for each in source.positions(at, self._ends(scan.number)) if isinstance(source, LogSource) else ():
                name = f"{each.partition} of input {scan.number}" if each.partition in found else each.partition
                found[name] = replace(each, partition=name)
        return tuple(found.values())

    def _refuse_gone(self, batch: int) -> None:
        """Raise if a log was made anew, or listed files vanished or changed. Spark skips those without an error."""
        if self._logs is not None:
            self._logs.refuse_replaced()
        for number, scan in enumerate(self._stages.scans):
            if isinstance(scan.source, FileListSource):
                given = dict.fromkeys(self._checkpoint.listed_in(batch, number))
                lists = self._checkpoint.listed(batch, number, LISTS).values()
                read = [file for files in lists for file in files if file not in given]
                scan.source.refuse_gone(tuple(given), read, self._spark)
        self._checkpoint.refuse_changed(self._spark)

    def _files(self, batch: int) -> dict[int, str]:
        """Return the files of this batch by the numbers that stand for their names."""
        listed = [number for number, scan in enumerate(self._stages.scans) if isinstance(scan.source, FileListSource)]
        lists = [self._checkpoint.listed_in(batch, number) for number in listed]
        return numbered(file.path for files in lists for file in files)

    def _horizons(self, batch: int) -> dict[int, int]:
        """Return the watermark of each step before this batch, if known. After a start, the folder has it."""
        if self._steps:
            return {number: step.progress.watermark for number, step in self._steps.items()}
        noted = self._checkpoint.noted(batch - 1)
        return {} if noted is None else dict(noted.steps)

    def _heads(self) -> dict[int, int]:
        """Return for each step the event time that all its partitions have reached."""
        found = {}
        for number, step in self._steps.items():
            of = [step.progress, *step.progress.inputs.values()]
            reached = [each.highest for one in of for each in one.partitions.values() if each.counts]
            known = [at for at in reached if at != NEVER]
            if known:
                found[number] = min(known)
        return found

    def _progress(self, gathered: Gathered) -> Progress:
        """Return the progress of the job: the minimum of its steps; without steps, whether all sources have ended."""
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
    """Collect the batch in one action. A second action would run it again."""
    try:
        carried = pl.DataFrame(frame.toArrow()).select("kg", "block").rows()
    except (PySparkException, Py4JJavaError) as problem:
        raise raised_by_a_task(problem) from None
    blocks = [(place(to), unpack(data, f"address {to}, output")) for to, data in carried]
    # Steps share addresses, and Spark guarantees no order.
    return gather(block for _, block in sorted(blocks, key=lambda each: (each[0], each[1].facts.get("step", -1))))


def raised_by_a_task(problem: Exception) -> Exception:
    """Return Strandline's error from the text of a task's error in Spark; else the error itself."""
    found = re.search(rf"strandline\.errors\.({'|'.join(_TASK_ERRORS)}): (.+)", str(problem))
    return problem if found is None else _TASK_ERRORS[found[1]](found[2])
