"""What a key group keeps: open windows in slices, and an index that says which slices are due.

    "index"        the progress of the source, per slice its rows, bytes, earliest deadlines and hold, and of every
                   block a digest
    "slice:<n>"    the open windows of slice n, with the items they hold and the panes they owe
    "changes:<n>"  some of them, as they are now, where the slice was left as it was; more under "changes:<n>:2" and so
                   on (see `changes`)
    "strips:<n>"   what windows share while they wait; and "strips:beside" (see `waiting`)

A step reads the index, then the slices that its input touches or a deadline makes due, and writes back only those.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import polars as pl

from strandline.errors import StateError
from strandline.kernel.aggregation.accumulators import (
    Combined,
    Frames,
    grouped,
    identity,
    items_of,
    merge_rows,
    merges,
    needs_earliest,
    parts_of,
    picks_of,
    together,
)
from strandline.kernel.aggregation.aggregates import VALUE
from strandline.kernel.aggregation.first_last import ranked
from strandline.kernel.blocks.block import (
    COUNTED,
    EARLIEST,
    NEW,
    OFFSET,
    PARTITION,
    START,
    TIME,
    Block,
    opened,
    pack,
    unpack,
)
from strandline.kernel.blocks.small_frames import only, stacked, without
from strandline.kernel.blocks.sorting import is_one, is_worth_it, replaced_in_order, rows_where
from strandline.kernel.state.partitioning import among, ordered, slices_of
from strandline.kernel.state.slice_rows import CHANGES, SLICE, WINDOWS, as_changed, changes_of, place_of
from strandline.kernel.watermarks import Progress, progress_from_facts, progress_to_facts
from strandline.kernel.window import triggers
from strandline.kernel.window.assign import span_of
from strandline.model.panes import Accumulation, PaneTimestamp
from strandline.model.steps import WindowedStep

FORM: Final = 4
"""Of state in its first form, some of what is now in the row of a window was beside it (see `older`); in its second,
changes said beside each row which one it stood for; in its third, nothing was beside slices of strips."""
INDEX: Final = "index"
OWED: Final = "owed"
_ITEMS: Final = "items:"
_TELLING: Final = (PARTITION, OFFSET, VALUE)
"""What tells the items of one window apart."""

ADDED: Final = "@added"
"""Elements since the last firing."""
HOLD: Final = "@hold"
"""The combined time of the counted, unfired elements: the output watermark stays below it."""
ARRIVED: Final = "@arrived"
"""The clock at which the last element came."""
SPOKEN: Final = "@spoken"
"""Panes told."""
SETTLED: Final = "@settled"
"""Panes told that were not early."""
CLOSED: Final = "@closed"
"""Whether the trigger has finished: only the mark is left."""
TOLD: Final = "@told."
"""Before a value's name: the value last told, kept where it may have to be taken back."""
TOLD_TIMING: Final = "@told:timing"
TOLD_TIME: Final = "@told:time"
_AT: Final = "@at"
DUE_WATERMARK, DUE_CLOCK = "@due_watermark", "@due_clock"
RIDING: Final = (DUE_WATERMARK, DUE_CLOCK)
"""Columns that are not kept."""
_ENTRY: Final = 7
"""What is said of a slice in the index."""
_SELDOM: Final = 4
"""Where fewer than one in so many windows get something, the others are left alone."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Open windows, their items, and the panes of sessions merged away that they still have to take back."""

    windows: pl.DataFrame | None = None
    items: Frames = field(default_factory=dict)
    owed: pl.DataFrame | None = None
    fresh: pl.DataFrame | None = None
    """Those that begin when no window did before this batch: in slices of their own, so they need not be copied."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice in the index: how much it holds, the earliest watermark and clock at which it must be read, its hold."""

    rows: int
    size: int
    due_watermark: int
    due_clock: int | None
    hold: int | None
    gone: int = 0
    """Rows that are kept and no longer true."""
    changes: int = 0
    """Blocks beside it."""


@dataclass(frozen=True, slots=True)
class Index:
    """The progress so far, the number of batches, and every slice."""

    progress: Progress = field(default_factory=Progress)
    turn: int = 0
    slices: Mapping[int, Slice] = field(default_factory=dict)
    strips: Mapping[int, Slice] = field(default_factory=dict)
    beside: Slice | None = None
    """What came to slices of strips that were left as they are."""
    form: int = FORM
    """In which way it is all kept."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of the blocks at all places but its own: who remembers a block need not read it again."""

    @property
    def entries(self) -> Sequence[Slice]:
        return [*self.slices.values(), *self.strips.values(), *(() if self.beside is None else (self.beside,))]

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.entries)

    @property
    def size(self) -> int:
        """Bytes of all slices."""
        return sum(entry.size for entry in self.entries)

    @property
    def output_watermark(self) -> int:
        """What the step forwards: its watermark, but below the hold of every open window."""
        holds = [entry.hold - 1 for entry in self.entries if entry.hold is not None]
        return min([self.progress.watermark, *holds])


def due(slices: Mapping[int, Slice], progress: Progress) -> set[int]:
    """The slices with a deadline that this progress reaches."""
    return {
        number
        for number, entry in slices.items()
        if entry.due_watermark <= progress.watermark
        or (entry.due_clock is not None and entry.due_clock < progress.clock)
    }


@cache
def initial(ask: WindowedStep) -> Mapping[str, pl.Expr]:
    """The columns of a window that has just been opened, besides its key, its bounds and its contents."""
    return {
        ADDED: pl.lit(0, pl.Int64),
        HOLD: pl.lit(None, pl.Int64),
        ARRIVED: pl.lit(0, pl.Int64),
        SPOKEN: pl.lit(0, pl.Int64),
        SETTLED: pl.lit(0, pl.Int64),
        CLOSED: pl.lit(False),
        **triggers.columns(ask.trigger),
    }


def keeps_told(ask: WindowedStep) -> bool:
    """Whether the values last told are kept: to be taken back, or because a condition reads them."""
    return ask.accumulation is Accumulation.RETRACTING or triggers.reads_last(ask.trigger)


def add(kept: Kept, added: Combined | None, keys: Sequence[str], ask: WindowedStep) -> Kept:
    """The open windows with a batch's elements added; NEW says how many came to each."""
    windows = kept.windows
    if added is None:
        return kept if windows is None else Kept(windows.with_columns(**_nothing_new(ask)), kept.items, kept.owed)
    fresh = None
    if windows is None:
        rows = merge_rows([added.rows], keys, ask) if added.repeats else added.rows
        merged = rows.with_columns(**initial(ask))
    else:
        merged, fresh = _merge(windows, added.rows, keys, ask)
    held = {}
    for name, kind in items_of(ask).items():
        found = [frame for frame in (kept.items.get(name), added.items.get(name)) if frame is not None]
        if found:
            held[name] = together(found, keys, kind)
    return Kept(merged, held, kept.owed, fresh)


@cache
def _nothing_new(ask: WindowedStep) -> Mapping[str, pl.Expr]:
    nothing = {NEW: pl.lit(0, pl.Int64), COUNTED: pl.lit(0, pl.Int64)}
    if needs_earliest(ask):
        nothing[EARLIEST] = pl.lit(None, pl.Int64)
    if ask.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        nothing[TIME] = pl.lit(None, pl.Int64)
    return nothing


def _merge(
    windows: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str], ask: WindowedStep
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Windows and what is added to them, and windows that begin when none of these does.

    Only windows that something comes to are put together with it.
    """
    found, fresh = [], None
    if span_of(ask.window) is not None:
        known = _begun(rows[START], windows[START])
        if not known.all():
            fresh = merge_rows([rows_where(rows, ~known)], keys, ask).with_columns(**initial(ask))
            rows = rows.filter(known)
    if rows.height * _SELDOM < windows.height or not rows.height:
        touched = among(windows, rows.select(identity(keys)).unique())
        if rows.height and (whole := _met_in_order(windows, touched, rows, keys, ask)) is not None:
            return whole, fresh
        found.append(windows.filter(~touched).with_columns(**_nothing_new(ask)))
        windows = windows.filter(touched)
    if rows.height:
        found.append(_met(windows, rows, keys, ask))
    return found[0] if len(found) == 1 else pl.concat(found, how="diagonal_relaxed"), fresh


def _begun(starts: pl.Series, before: pl.Series) -> pl.Series:
    """Which of the windows that start there start with one that is there already."""
    return starts == before[0] if before.len() and is_one(before) else starts.is_in(before.unique().implode())


def _met_in_order(
    windows: pl.DataFrame, touched: pl.Series, rows: pl.DataFrame, keys: Sequence[str], ask: WindowedStep
) -> pl.DataFrame | None:
    """All of them, in order, where windows that begin together stand so already: then nothing need be sorted later."""
    if not is_worth_it(windows.height) or len(keys) != 1 or not is_one(windows[START]):
        return None
    met = _met(windows.filter(touched), rows, keys, ask)
    return replaced_in_order(windows.with_columns(**_nothing_new(ask)), touched, met, keys[0])


def _met(windows: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    """Windows with what comes to them; one column says where what was kept of a window stands.

    To take the first of every kept column would cost three times as much.
    """
    joined = {*identity(keys), NEW, COUNTED, EARLIEST, TIME, *(part.name for part in parts_of(ask))}
    kept = [name for name in windows.columns if name not in joined]
    mine = without(windows, kept).with_columns(**_nothing_new(ask)).with_row_index(_AT)
    both = pl.concat([mine, rows], how="diagonal_relaxed")
    ranks = ranked(both, picks_of(ask))
    met = ranks.fetched(grouped(ranks.frame, keys, ask, [*merges(ask, both), *ranks.made, pl.col(_AT).max()]))
    places = met[_AT]
    if not places.null_count():
        return without(met, (_AT,)).hstack(only(windows, kept)[places])
    found, opened = windows.select(pl.col(kept).gather(places)), places.is_null()
    new = {name: value for name, value in initial(ask).items() if name in kept}
    found = found.with_columns(pl.when(opened).then(value).otherwise(name).alias(name) for name, value in new.items())
    return without(met, (_AT,)).hstack(found)


def read_index(held: Mapping[str, bytes]) -> Index:
    """The index, or that of a key group that has never been touched."""
    data = held.get(INDEX)
    if data is None:
        return Index()
    facts = unpack(data, INDEX).facts
    form = facts.get("form", 1)
    if form > FORM:
        raise StateError(
            f"the state of this job has form {form}",
            detail=f"this Strandline reads forms 1 to {FORM}",
            hint="it was written by a later release: go on with that one",
        )
    slices, strips = _from_facts(facts["slices"]), _from_facts(facts["strips"])
    beside = Slice(*facts["beside"]) if facts.get("beside") else None
    digests = facts.get("digests", {})
    return Index(progress_from_facts(facts["progress"]), facts["turn"], slices, strips, beside, form, digests)


def digests_in(index: bytes) -> Mapping[str, str]:
    """The digests in an index that is still packed; none if it was written before there were any."""
    found: Mapping[str, str] = unpack(index, INDEX).facts.get("digests", {})
    return found


def digest(data: bytes) -> str:
    """Of a block's bytes, in 64 bits: enough to tell what stands at a place now from what stood there before."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def write_index(index: Index, writes: Mapping[str, bytes | None] | None = None, before: Index | None = None) -> bytes:
    """An index as bytes, with the digests of all blocks there are once these are written."""
    writes, known = writes or {}, (before or index).digests
    left = {place: was for place, was in known.items() if place not in writes}
    new = {place: digest(data) for place, data in writes.items() if data is not None}
    facts = {
        "progress": progress_to_facts(index.progress),
        "turn": index.turn,
        "slices": _to_facts(index.slices),
        "strips": _to_facts(index.strips),
        "beside": None if index.beside is None else _told_of(index.beside),
        "form": FORM,
        "digests": left | new,
    }
    return pack(Block(facts=facts))


def _from_facts(entries: Mapping[str, Sequence[Any]]) -> dict[int, Slice]:
    # In the second form there was one block of changes or none, and for how many rows they stood was not said.
    return {
        int(number): Slice(*entry, *([1] if len(entry) == _ENTRY - 1 and entry[-1] else []))
        for number, entry in entries.items()
    }


def _to_facts(slices: Mapping[int, Slice]) -> dict[str, list[int | None]]:
    return {str(number): _told_of(entry) for number, entry in sorted(slices.items())}


def _told_of(entry: Slice) -> list[int | None]:
    return [
        entry.rows,
        entry.size,
        entry.due_watermark,
        entry.due_clock,
        entry.hold,
        entry.gone,
        entry.changes,
    ]


def read_slices(
    held: Mapping[str, bytes],
    numbers: Iterable[int],
    changes: Mapping[int, int] | None = None,
    sift: Callable[[int, Frames], Frames] | None = None,
) -> Kept:
    """The open windows of these slices, with all that belongs to them, sifted; of some there are so many changes."""
    found: dict[str, list[pl.DataFrame]] = {}
    for number in sorted(numbers):
        place = place_of(number)
        data = held.get(place)
        if data is not None:
            beside = changes_of(number, (changes or {}).get(number, 0))
            frames = as_changed(unpack(data, place).frames, [opened(held[each], each) for each in beside])
            for name, frame in (frames if sift is None else sift(number, frames)).items():
                found.setdefault(name, []).append(frame)
    frames = {name: stacked(each) for name, each in found.items()}
    items = {name.removeprefix(_ITEMS): frame for name, frame in frames.items() if name.startswith(_ITEMS)}
    return Kept(frames.get(WINDOWS), items, frames.get(OWED))


def write_slices(
    kept: Kept,
    held: Iterable[int],
    keys: Sequence[str],
    ask: WindowedStep,
    deadlines: tuple[pl.Expr, pl.Expr],
    beside: Mapping[int, Callable[[pl.DataFrame], tuple[Mapping[str, bytes | None], Slice]]] | None = None,
) -> tuple[dict[str, bytes | None], dict[int, Slice]]:
    """The bytes of every opened slice, None where nothing is left of one that was held, and the index entries of those
    that remain. What is given for `beside` stays beside its slice, in words of its own."""
    writes: dict[str, bytes | None] = {place_of(number): None for number in held}
    entries: dict[int, Slice] = {}
    span = span_of(ask.window)
    due = (deadlines[0].alias(DUE_WATERMARK), deadlines[1].alias(DUE_CLOCK))
    rows = [each.with_columns(due) for each in (kept.windows, kept.fresh) if each is not None and each.height]
    # Items are left in the order of their arrival, which is the same whenever a batch is played.
    split = {_ITEMS + name: by_slice(frame, keys, span) for name, frame in kept.items.items()} if rows else {}
    if kept.owed is not None and rows:
        split[OWED] = _split(kept.owed, keys, span)
    beside = beside or {}
    for number, windows in ((n, part) for each in rows for n, part in _split(each, keys, span).items()):
        if number in beside:
            changes, entries[number] = beside[number](windows)
            writes |= changes
            continue
        mine = {name: parts[number] for name, parts in split.items() if number in parts}
        data = pack(Block({**mine, WINDOWS: without(windows, RIDING)}))
        writes[place_of(number)] = data
        dues = (_least(windows[DUE_WATERMARK]), _least(windows[DUE_CLOCK]), _least(windows[HOLD]))
        entries[number] = Slice(windows.height, len(data), *dues)
    return writes, entries


def in_order(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Rows in an order that does not depend on how they came about."""
    return ordered(frame, [*identity(keys), *(name for name in _TELLING if name in frame.columns)])


def _split(frame: pl.DataFrame, keys: Sequence[str], span: int | None) -> dict[int, pl.DataFrame]:
    """Rows apart by slice, each slice in order."""
    return {number: in_order(part, keys) for number, part in by_slice(frame, keys, span).items()}


def by_slice(frame: pl.DataFrame, keys: Sequence[str], span: int | None) -> dict[int, pl.DataFrame]:
    """Rows apart by slice, the slices in order, so that a batch that is played again writes them alike."""
    numbers = slices_of(frame, keys, span)
    if not frame.height:
        return {}
    if numbers.min() == numbers.max():
        return {int(numbers[0]): frame}
    split = frame.with_columns(numbers.alias("@slice")).partition_by(
        "@slice", as_dict=True, maintain_order=True, include_key=False
    )
    return {int(number): split[number,] for (number,) in sorted(split)}


def _least(column: pl.Series) -> Any:
    return column.min()


def frames_of(blocks: Mapping[str, bytes], said: str = "") -> Iterator[tuple[str, Frames]]:
    """The frames at every place of a key group but the index, slices as they are with their changes.

    What is `said` goes before the place in an error.
    """
    for place, data in sorted(blocks.items()):
        kind, _, number = place.partition(":")
        if kind in (INDEX, CHANGES):
            continue
        beside = changes_of(int(number), blocks) if kind == SLICE else ()
        changes = [opened(blocks[each], said + each) for each in beside]
        yield place, as_changed(unpack(data, said + place).frames, changes)
