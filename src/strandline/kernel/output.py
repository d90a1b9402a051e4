"""Collect the output of a batch from all key groups: panes, late elements, dead letters, progress and counts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from strandline.kernel.blocks.block import Block
from strandline.kernel.step import Stepped
from strandline.kernel.watermarks import NEVER, Progress, progress_from_facts, progress_to_facts
from strandline.model.counts import COUNTED, Counts

__all__ = ["COUNTED", "Counts", "Output", "Part", "counts_to_facts", "gather", "to_block"]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that a task has written to a sink's storage; they become visible when the sink commits."""

    rows: int
    sums: tuple[int, int] = (0, 0)
    """Sums of row hashes, as in the digest of an output."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """Metadata for the sink, such as the file that holds the rows."""


@dataclass(frozen=True, slots=True)
class Output:
    """The output of one batch."""

    panes: pl.DataFrame | None = None
    late: pl.DataFrame | None = None
    dead: pl.DataFrame | None = None
    progress: Progress = field(default_factory=Progress)
    counts: Counts = Counts()
    output_watermark: int = NEVER
    rows: int = 0
    """Number of state rows over all key groups: windows, or shared slices of windows."""
    parts: tuple[Part, ...] = ()
    """Rows that tasks have written to the sink's storage; they are not in `panes`."""
    some: pl.DataFrame | None = None
    """Sample of the rows in `parts`, for the live view and metrics."""


def to_block(stepped: Stepped, dead: pl.DataFrame | None, counts: Counts) -> Block:
    """Encode the output of one key group as a block."""
    frames = {"panes": stepped.rows, "late": stepped.late, "dead": dead}
    full = {name: frame for name, frame in frames.items() if frame is not None and frame.height}
    total = counts + counts_of(stepped)
    facts = {
        "progress": progress_to_facts(stepped.progress),
        "counts": counts_to_facts(total),
        "output_watermark": stepped.output_watermark,
        "rows": stepped.state_rows,
    }
    return Block(full, facts)


def gather(blocks: Iterable[Block]) -> Output:
    """Merge the outputs of all key groups. Their progress is equal, since all fold the same control rows."""
    blocks = list(blocks)
    counts, progress = Counts(), Progress()
    for block in blocks:
        counts += Counts(**block.facts["counts"])
        progress = progress_from_facts(block.facts["progress"])
    panes, late, dead = (_concat(blocks, name) for name in ("panes", "late", "dead"))
    least = min((block.facts["output_watermark"] for block in blocks), default=NEVER)
    rows = sum(block.facts["rows"] for block in blocks)
    return Output(panes, late, dead, progress, counts, least, rows)


def _concat(blocks: list[Block], name: str) -> pl.DataFrame | None:
    found = [block.frames[name] for block in blocks if name in block.frames]
    return pl.concat(found, how="diagonal_relaxed") if found else None


def counts_of(stepped: Stepped) -> Counts:
    """Return what a batch did with the elements of a key group."""
    return Counts(
        contributed=stepped.contributed, late=stepped.refused, filtered=stepped.filtered, overflow=stepped.overflow
    )


def counts_to_facts(counts: Counts) -> Mapping[str, int]:
    """Convert counts to plain values, for the facts of a block."""
    return {name: getattr(counts, name) for name in COUNTED}
