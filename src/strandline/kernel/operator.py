"""The contract of keyed operators: what the shell, the prepare stage and savepoints ask of each.

A keyed operator turns elements by key into rows with time and sign. Window and deduplication are two; joins, patterns
and keyed functions join them. Nothing outside an operator asks which one it is: `operators.operator_of` makes one from
its definition, and everything else uses this protocol.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from strandline.kernel.blocks.block import Block, Frames
from strandline.kernel.state.slice_store import Index, Slices
from strandline.kernel.watermarks import Progress, Rule

WATERMARK = "@watermark"
"""Column of a late row: the watermark before its batch."""
PARTIAL = "@partial"
"""Column of a late row: whether other windows took the element."""
ROWS = "rows"
"""Frame of a prepared block with elements one by one."""

Writes = Mapping[str, bytes | None]
"""Blocks to write by place; None deletes one."""


@dataclass(frozen=True, slots=True)
class Instant:
    """The two clocks of a batch, each before and after it, and the batch's number."""

    before: int
    after: int
    clock_before: int
    clock: int
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """Blocks by key group, and how many elements need not cross the shuffle."""

    blocks: Mapping[int, Block]
    filtered: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What an operator plays: its state, its index, and the blocks that came for one key group."""

    held: Mapping[str, bytes]
    index: Index
    blocks: Sequence[Block]
    now: Instant
    progress: Progress


@dataclass(frozen=True, slots=True)
class Played:
    """What a batch changes and emits."""

    writes: Writes
    stores: Mapping[str, Slices]
    """The slices of every store after the batch."""
    rows: pl.DataFrame | None = None
    """Rows with time and sign, and the columns that the operator declares."""
    late: pl.DataFrame | None = None
    contributed: int = 0
    refused: int = 0
    """Late elements."""
    filtered: int = 0
    """Elements that are intentionally left out, such as duplicates."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The state of a step without its key groups: its progress, the number of its batches, frames by name."""

    progress: Progress = field(default_factory=Progress)
    turn: int = 0
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
        """Split elements into those that can be taken in and those that cannot, with REASON. Runs in tasks."""
        ...

    def probe(self, elements: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Split off elements on which a user's code fails, with PROBLEM. Runs in tasks."""
        ...

    def prepare(self, elements: pl.DataFrame, groups: int, horizon: int | None) -> Prepared:
        """Pack elements as one block for each key group. The horizon is an upper bound of the watermark, if known."""
        ...

    def play(self, batch: Batch) -> Played:
        """Play one batch of one key group."""
        ...

    def blocks_of(self, exported: Exported) -> dict[str, bytes]:
        """Write exported state of one key group as the blocks that the operator itself would have written."""
        ...

    def fitted(self, exported: Exported, fit: Fit) -> Exported:
        """Change exported state to what this definition needs, from any released version."""
        ...

    def missing(self, exported: Exported) -> list[str]:
        """Say what this definition needs and the exported state lacks."""
        ...
