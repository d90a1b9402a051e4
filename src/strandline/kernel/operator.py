"""Define the protocol of keyed operators, which the step, the prepare stage and savepoints use.

A keyed operator turns elements by key into rows with time and sign: window, deduplication, and the interval, window,
table and temporal joins. In the kernel, only `operators.operator_of` distinguishes operators; all other code uses this
protocol.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from strandline.kernel.blocks.block import Block, Frames
from strandline.kernel.state.slice_store import Index, Slices
from strandline.kernel.watermarks import Progress, Rule
from strandline.model.counts import InputCounts

WATERMARK = "@watermark"
"""Column of a late row: the watermark before its batch."""
PARTIAL = "@partial"
"""Column of a late row: whether other windows took the element."""
ROWS = "rows"
"""Frame of a prepared block with single elements."""

Writes = Mapping[str, bytes | None]
"""Blocks to write by place; None deletes one."""


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The watermark and the clock, each before and after a batch, and the number of the batch."""

    before: int
    after: int
    clock_before: int
    clock: int
    batch_number: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """Blocks by key group, and the number of elements that are not shuffled because no window contains them."""

    blocks: Mapping[int, Block]
    filtered: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The input of an operator: state, index and input blocks of one key group, and the watermark."""

    held: Mapping[str, bytes]
    index: Index
    blocks: Sequence[Block]
    now: BatchTimes
    progress: Progress


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The changes and the output of a batch."""

    writes: Writes
    stores: Mapping[str, Slices]
    """The slices of every store after the batch."""
    rows: pl.DataFrame | None = None
    """Output rows with time, sign and the columns that the operator declares."""
    late: pl.DataFrame | None = None
    contributed: int = 0
    refused: int = 0
    """Late elements."""
    filtered: int = 0
    """Elements that are dropped on purpose, such as duplicates."""
    overflow: int = 0
    """Sums in new panes that are null because they have overflowed."""
    inputs: Mapping[str, InputCounts] = field(default_factory=dict)
    """Counts by role, for operators that store the rows of several inputs."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The state of a step, independent of key groups: its progress, the number of batches, frames by name."""

    progress: Progress = field(default_factory=Progress)
    batch_number: int = 0
    frames: Frames = field(default_factory=dict)
    rows: int = 0
    """Rows of all slices."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Changes to exported state before another definition of its step can use it."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    new_trigger: bool = False


class KeyedOperator(Protocol):
    """A keyed operator over certain key columns. Frames have their key columns under the same names."""

    @property
    def keys(self) -> Sequence[str]: ...

    @property
    def takes_signs(self) -> bool:
        """Tell whether elements carry a sign, because the input retracts."""
        ...

    def admit(self, elements: pl.DataFrame, rule: Rule | None, clock: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Split elements into valid ones and dead letters with REASON. Runs in tasks."""
        ...

    def probe(self, elements: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Split off elements on which user code fails, with PROBLEM. Runs in tasks."""
        ...

    def prepare(self, elements: pl.DataFrame, groups: int, horizon: int | None) -> Prepared:
        """Pack elements as one block per key group. The horizon is an upper bound of the watermark, if known."""
        ...

    def play(self, batch: Batch) -> BatchResult:
        """Process one batch of one key group."""
        ...

    def blocks_of(self, exported: Exported) -> dict[str, bytes]:
        """Write exported state of one key group as blocks, in the layout that `play` writes."""
        ...

    def fitted(self, exported: Exported, fit: Fit) -> Exported:
        """Adapt exported state of any released version to this definition."""
        ...

    def missing(self, exported: Exported) -> list[str]:
        """List what this definition needs and the exported state lacks."""
        ...
