"""What a key group keeps: open windows in slices, and an index that says which slices are due.

    "index"        the progress of the source, and per slice its rows, bytes and earliest deadlines
    "slice:<n>"    the open windows whose start falls into slice n

A step reads the index, then the slices that its input touches or a deadline makes due, and writes back only those.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.kernel import triggers
from strandline.kernel.aggregates import Part, columns_of
from strandline.kernel.blocks import END, NEW, START, Block, pack, unpack
from strandline.kernel.watermarks import Progress, progress_from_facts, progress_to_facts
from strandline.model.panes import Accumulation
from strandline.model.steps import WindowedStep

INDEX: Final = "index"

ADDED: Final = "@added"
"""Elements since the last firing."""
HOLD: Final = "@hold"
"""Whether an unfired element was counted before the window's end, so that the window may still speak on time."""
SPOKEN: Final = "@spoken"
"""Panes told."""
SETTLED: Final = "@settled"
"""Panes told that were not early."""
CLOSED: Final = "@closed"
"""Whether the trigger has finished: only the mark is left."""
TOLD: Final = "@told."
"""Before a value's name: the value last told, kept where it may have to be taken back."""
TOLD_TIMING: Final = "@told:timing"


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice in the index: how much it holds, and the earliest watermark and clock at which it must be read."""

    rows: int
    size: int
    due_watermark: int
    due_clock: int | None


@dataclass(frozen=True, slots=True)
class Index:
    progress: Progress
    slices: Mapping[int, Slice]

    def due(self, progress: Progress) -> set[int]:
        """The slices with a deadline that this progress reaches."""
        return {
            number
            for number, entry in self.slices.items()
            if entry.due_watermark <= progress.watermark
            or (entry.due_clock is not None and entry.due_clock < progress.clock)
        }


def parts_of(ask: WindowedStep) -> list[Part]:
    """The columns kept for the aggregates."""
    return [part for name, aggregate in ask.aggregates for part in columns_of(name, aggregate).parts]


def initial(ask: WindowedStep) -> dict[str, pl.Expr]:
    """The columns of a window that has just been opened, besides its key, its bounds and its aggregates."""
    base: dict[str, pl.Expr] = {
        ADDED: pl.lit(0, pl.Int64),
        HOLD: pl.lit(False),
        SPOKEN: pl.lit(0, pl.Int64),
        SETTLED: pl.lit(0, pl.Int64),
        CLOSED: pl.lit(False),
    }
    kept = {name: pl.lit(one.initial, one.kind) for name, one in triggers.columns(ask.trigger).items()}
    if not keeps_told(ask):
        return base | kept
    # A value that is never chosen still gives its type to the nulls that stand in for it.
    nothing = {TOLD + name: pl.when(False).then(value) for name, value in values_of(ask).items()}
    return base | kept | nothing | {TOLD_TIMING: pl.lit(None, pl.String)}


def values_of(ask: WindowedStep) -> dict[str, pl.Expr]:
    """The values that a pane tells."""
    return {name: columns_of(name, aggregate).value.alias(name) for name, aggregate in ask.aggregates}


def merge(windows: pl.DataFrame | None, parts: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    """The open windows with a batch's parts added; NEW says how many elements came to each."""
    fresh = parts.with_columns(**initial(ask))
    if windows is None:
        return fresh
    # State comes first, so that first() finds what was kept wherever a window was already open.
    both = pl.concat([windows.with_columns(pl.lit(0, pl.Int64).alias(NEW)), fresh], how="diagonal_relaxed")
    summed = {NEW: pl.col(NEW).sum()} | {part.name: part.merge for part in parts_of(ask)}
    identity = [*keys, START, END]
    rest = [name for name in both.columns if name not in summed and name not in identity]
    return both.group_by(identity).agg(
        *(expression.alias(name) for name, expression in summed.items()), *(pl.col(name).first() for name in rest)
    )


def keeps_told(ask: WindowedStep) -> bool:
    """Whether the values last told are kept."""
    return ask.accumulation is Accumulation.RETRACTING


def read_index(held: Mapping[str, bytes]) -> Index:
    """The index, or that of a key group that has never been touched."""
    data = held.get(INDEX)
    if data is None:
        return Index(Progress(), {})
    facts = unpack(data, INDEX).facts
    slices = {int(number): Slice(*entry) for number, entry in facts["slices"].items()}
    return Index(progress_from_facts(facts["progress"]), slices)


def write_index(index: Index) -> bytes:
    entries = {
        str(number): [entry.rows, entry.size, entry.due_watermark, entry.due_clock]
        for number, entry in sorted(index.slices.items())
    }
    return pack(Block(facts={"progress": progress_to_facts(index.progress), "slices": entries}))


def read_slices(held: Mapping[str, bytes], numbers: Iterable[int]) -> pl.DataFrame | None:
    """The open windows of these slices."""
    found = []
    for number in sorted(numbers):
        place = _place(number)
        data = held.get(place)
        if data is not None:
            found.append(unpack(data, place).frames["windows"])
    return pl.concat(found, how="diagonal_relaxed") if found else None


def write_slices(
    windows: pl.DataFrame, opened: Iterable[int], slice_number: pl.Expr, deadlines: tuple[pl.Expr, pl.Expr]
) -> tuple[dict[str, bytes | None], dict[int, Slice]]:
    """The bytes of every opened slice, None where nothing is left, and the index entries of those that remain."""
    numbered = windows.with_columns(
        slice_number.alias("@slice"), deadlines[0].alias("@due_watermark"), deadlines[1].alias("@due_clock")
    )
    writes: dict[str, bytes | None] = {_place(number): None for number in opened}
    entries = {}
    for (number,), part in numbered.partition_by("@slice", as_dict=True, maintain_order=True).items():
        data = pack(Block({"windows": part.drop("@slice", "@due_watermark", "@due_clock")}))
        writes[_place(number)] = data
        entries[number] = Slice(part.height, len(data), _least(part["@due_watermark"]), _least(part["@due_clock"]))
    return writes, entries


def _least(column: pl.Series) -> Any:
    return column.min()


def _place(number: int) -> str:
    return f"slice:{number}"
