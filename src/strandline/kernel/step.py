"""Process one batch of one key group: read the index, advance the watermark, run the operator, write the index.

All keyed operators share this code. `operator.py` defines what an operator does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from strandline.kernel.blocks.block import Block
from strandline.kernel.operator import PARTIAL, WATERMARK, Batch, BatchTimes, Writes
from strandline.kernel.operators import operator_of
from strandline.kernel.state.slice_store import INDEX, Index, read_index, write_index
from strandline.kernel.watermarks import Control, Input, Progress, Rule, advance, advance_inputs
from strandline.model.counts import InputCounts
from strandline.model.operators import Operator, OperatorInput

__all__ = ["PARTIAL", "WATERMARK", "StepSpec", "Stepped", "step"]


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A keyed step for the kernel: key columns, operator definition, and the rule of its watermark."""

    keys: tuple[str, ...]
    operator: Operator
    watermark: Rule
    partitions: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    """Set for several inputs, or if an input is another step; `watermark` then combines them."""
    paths: tuple[OperatorInput, ...] = ()
    """The paths into the operator by number, with their roles."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """The result of a batch: blocks to write, rows, late elements, the progress, counts."""

    writes: Writes
    rows: pl.DataFrame | None
    late: pl.DataFrame | None
    progress: Progress
    output_watermark: int
    contributed: int
    refused: int
    filtered: int = 0
    state_rows: int = 0
    batch_number: int = 0
    """The number of this batch in this key group."""
    size: int = 0
    """Bytes of state."""
    overflow: int = 0
    """Sums in new panes that are null because they have overflowed."""
    due: int | None = None
    """The clock at which a batch without elements does something here; None if only elements or the watermark can."""
    inputs: Mapping[str, InputCounts] = field(default_factory=dict)
    """Counts by role, for operators that store the rows of several inputs."""


def step(held: Mapping[str, bytes], blocks: Sequence[Block], controls: Sequence[Control], spec: StepSpec) -> Stepped:
    """Process one batch with the state of a key group."""
    index = read_index(held)
    before = index.progress
    progress = _advance(before, controls, spec)
    now = BatchTimes(before.watermark, progress.watermark, before.clock, progress.clock, index.batch_number)
    result = operator_of(spec.operator, spec.keys, spec.paths).play(Batch(held, index, blocks, now, progress))
    after = Index(progress, index.batch_number + 1, result.stores)
    return Stepped(
        {**result.writes, INDEX: write_index(after, result.writes, index)},
        result.rows,
        result.late,
        progress,
        after.output_watermark,
        result.contributed,
        result.refused,
        result.filtered,
        after.rows,
        now.batch_number,
        after.size,
        result.overflow,
        after.due_clock,
        result.inputs,
    )


def _advance(before: Progress, controls: Sequence[Control], spec: StepSpec) -> Progress:
    if spec.inputs:
        return advance_inputs(before, controls, spec.inputs)
    return advance(before, controls, spec.partitions, spec.watermark)
