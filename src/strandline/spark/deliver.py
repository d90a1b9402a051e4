"""foreachBatch: gather what the key groups say, check that nobody is missing, and commit it under one ledger entry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from strandline.errors import StateError
from strandline.kernel.blocks import unpack
from strandline.kernel.letters import Reasons, reasons_of, sealed
from strandline.kernel.output import Counts, Output
from strandline.kernel.watermarks import FOREVER, NEVER, Progress
from strandline.plan.stages import Scan, Stages
from strandline.spark.batch import Batch, tell
from strandline.spark.checkpoint import Checkpoint
from strandline.spark.gathering import Gathered, StepOutput, gather
from strandline.spark.ports import Followed, LedgerEntry, OpenSink


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
    reasons: Reasons = field(default_factory=dict)
    """Why there are dead letters, over all sinks."""


class Deliverer:
    """Carries batches from Spark to the sinks, one batch after the other, in each batch one sink after the other."""

    def __init__(
        self,
        spark: SparkSession,
        stages: Stages,
        sinks: tuple[OpenSink, ...],
        checkpoint: Checkpoint,
        lineage: str,
        listener: Callable[[Delivered], None],
    ) -> None:
        self._spark, self._stages, self._sinks = spark, stages, sinks
        self._checkpoint, self._lineage, self._listener = checkpoint, lineage, listener
        self._epochs = tuple(sink.claim(lineage) for sink in sinks)
        self._steps: dict[int, StepOutput] = {}
        self._ended: dict[int, frozenset[str]] = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        # What a sink will hold may not outlive the range it came from.
        digest = self._checkpoint.seal(batch)
        positions = self._positions(batch)
        partitions = {scan.number: each.partitions_at(at) for scan, each, at in positions}
        tell(self._spark.sparkContext, Batch(self._checkpoint.clock(batch), self._horizons(batch), partitions))
        gathered = _gather(frame)
        for name, counts in gathered.counts.items():
            if counts.missing:
                raise StateError(
                    f"batch {batch}: {counts.missing} elements of {name} are unaccounted for", detail=str(counts)
                )
        self._steps |= gathered.steps
        progress, rows = self._progress(gathered), sum(step.rows for step in self._steps.values())
        outputs = [self._sealed(gathered.output(each, progress, rows), batch) for each in range(len(self._sinks))]
        written = False
        for sink, epoch, output in zip(self._sinks, self._epochs, outputs, strict=True):
            written = sink.commit(output, LedgerEntry(self._lineage, epoch, batch, digest)) or written
        for _, source, at in positions:
            source.delivered(f"strandline-{self._lineage}", at)
        offsets = self._checkpoint.offsets(batch) or {}
        reasons = reasons_of(output.dead for output in outputs if output.dead is not None)
        self._listener(Delivered(batch, outputs[0], offsets, not written, dict(self._steps), gathered.counts, reasons))

    def _sealed(self, output: Output, batch: int) -> Output:
        """Dead letters get the rest of their envelope here: whose they are, and the batch's own clock."""
        if output.dead is None:
            return output
        return replace(output, dead=sealed(output.dead, self._lineage, self._checkpoint.clock(batch)))

    def _positions(self, batch: int) -> list[tuple[Scan, Followed, Any]]:
        """Where the sources that can be followed stand at the end of this batch."""
        found: list[tuple[Scan, Followed, Any]] = []
        for place, scan in enumerate(self._stages.scans):
            at = self._checkpoint.offsets(batch, place)
            if isinstance(scan.source, Followed) and at is not None:
                found.append((scan, scan.source, at))
        return found

    def _horizons(self, batch: int) -> dict[int, int]:
        """The watermark of each step before this batch, where it is known: after a start, only what a ledger says."""
        if self._steps or len(self._stages.steps) != 1:
            return {number: step.progress.watermark for number, step in self._steps.items()}
        before = self._sinks[0].recorded(self._lineage, batch - 1)
        return {} if before is None else {self._stages.steps[0].number: before.watermark}

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
    carried = pl.DataFrame(frame.toArrow()).sort("kg")
    return gather(unpack(data, f"address {to}, output") for to, data in carried.select("kg", "block").iter_rows())
