"""What a batch says, from all key groups: panes, late elements, dead letters, progress, and a count of everyone."""

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
    """Rows that a task has put where a sink keeps them: they count once the sink says so."""

    rows: int
    sums: tuple[int, int] = (0, 0)
    """Of their hashes, as in the digest of an output."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the sink is to know of them."""


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
    """Windows that are kept, or strips that they share, over all key groups."""
    parts: tuple[Part, ...] = ()
    """Elements that are where the sink keeps them already, and not among `panes`."""
    some: pl.DataFrame | None = None
    """A few of those, for whoever watches."""


def to_block(stepped: Stepped, dead: pl.DataFrame | None, counts: Counts) -> Block:
    """The output of one key group as a block."""
    frames = {"panes": stepped.rows, "late": stepped.late, "dead": dead}
    full = {name: frame for name, frame in frames.items() if frame is not None and frame.height}
    everyone = counts + Counts(contributed=stepped.contributed, late=stepped.refused, filtered=stepped.filtered)
    facts = {
        "progress": progress_to_facts(stepped.progress),
        "counts": counts_to_facts(everyone),
        "output_watermark": stepped.output_watermark,
        "rows": stepped.state_rows,
    }
    return Block(full, facts)


def gather(blocks: Iterable[Block]) -> Output:
    """The outputs of all key groups as one. Their progress is the same, since all fold the same control rows."""
    blocks = list(blocks)
    counts, progress = Counts(), Progress()
    for block in blocks:
        counts += Counts(**block.facts["counts"])
        progress = progress_from_facts(block.facts["progress"])
    panes, late, dead = (_together(blocks, name) for name in ("panes", "late", "dead"))
    least = min((block.facts["output_watermark"] for block in blocks), default=NEVER)
    rows = sum(block.facts["rows"] for block in blocks)
    return Output(panes, late, dead, progress, counts, least, rows)


def _together(blocks: list[Block], name: str) -> pl.DataFrame | None:
    found = [block.frames[name] for block in blocks if name in block.frames]
    return pl.concat(found, how="diagonal_relaxed") if found else None


def counts_to_facts(counts: Counts) -> Mapping[str, int]:
    return {name: getattr(counts, name) for name in COUNTED}
