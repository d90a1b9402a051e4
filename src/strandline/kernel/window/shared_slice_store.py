"""Strips that wait: the elements of overlapping windows, kept once, until the last of their windows is gone.

    "strips:<n>"     the strips of slice n, with their items
    "strips:beside"  what came later to slices of which little changed: these stay as they are until it is much

A window has no row of its own while it waits for its end. When the watermark passes that, its contents are spread from
its strips, and it speaks. It needs no row after that either, as long as its strips can tell what it has said: nothing
but its on-time pane. Only when an element comes late is such a window recalled, and has a row from then on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import polars as pl

from strandline.kernel.aggregation.accumulators import (
    Combined,
    concat_unmerged,
    identity,
    items_of,
    merge_rows,
    merged,
    together,
)
from strandline.kernel.blocks.block import END, START, Block, Frames, pack, unpack
from strandline.kernel.blocks.small_frames import stacked
from strandline.kernel.operator import Instant
from strandline.kernel.state.partitioning import slices_of
from strandline.kernel.state.slice_rows import SHARED
from strandline.kernel.state.slice_store import BESIDE, Index, Slice, Slices, by_slice, due
from strandline.kernel.watermarks import FOREVER, Progress
from strandline.kernel.window.assign import assign, expires, max_timestamp
from strandline.kernel.window.panes import on_time, on_time_before
from strandline.kernel.window.prepare import SURE
from strandline.kernel.window.shared_slices import (
    first_over,
    first_waiting,
    last_end,
    last_over,
    next_over,
    shares,
    slice_span,
    striped,
    windows_ending,
)
from strandline.kernel.window.state_migrations import in_rows
from strandline.kernel.window.window_rows import OpenWindows, keeps_told
from strandline.kernel.window.window_slices import in_order
from strandline.kernel.window.windows_from_slices import spread
from strandline.model.elements import ZERO
from strandline.model.panes import Accumulation, Emit, LateRows
from strandline.model.steps import WindowedStep
from strandline.model.triggers import Never

STRIPS: Final = SHARED.name
LARGE: Final = 256
"""So many strips of a slice make it worth the trouble to leave them as they are."""
SELDOM: Final = 4
"""What is beside a slice is less than one in so many."""
_ITEMS: Final = "items:"
_FROM, _TO = "@from", "@to"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Slices of strips that were read, what is beside slices, and which of all that is no longer as it was."""

    slices: Mapping[int, Combined] = field(default_factory=dict)
    changed: frozenset[int] = frozenset()
    beside: Combined | None = None
    stay: frozenset[int] = frozenset()
    """The slices that stay as they are: what comes to them goes beside."""
    is_new_beside: bool = False

    @property
    def all(self) -> Sequence[Combined]:
        return [*self.slices.values(), *(() if self.beside is None else (self.beside,))]

    @property
    def rows(self) -> pl.DataFrame:
        return stacked([each.rows for each in self.all])

    def items(self, ask: WindowedStep) -> Frames:
        held = {name: [each.items[name] for each in self.all if name in each.items] for name in items_of(ask)}
        return {name: stacked(found) for name, found in held.items() if found}


@dataclass(frozen=True, slots=True)
class Ripe:
    """What windows that have just ended say, and those of them that must be kept by themselves from now on."""

    panes: pl.DataFrame | None = None
    windows: Combined | None = None


@cache
def _remembers(ask: WindowedStep) -> bool:
    """Whether a window that has ended needs a row even if nothing comes any more: strips cannot tell what it must."""
    return keeps_told(ask) or ask.final_pane is Emit.ALWAYS or isinstance(ask.trigger, Never)


def apart(rows: pl.DataFrame, ask: WindowedStep, now: Instant) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """Elements with windows still ahead, in strips; and those with windows that are over, beside each of these."""
    ahead = max_timestamp(last_end(ask)) > now.before
    fresh, behind = rows.filter(ahead), rows.filter(first_over(ask) <= now.before)
    if ask.lateness.allowed == ZERO and ask.lateness.rows is LateRows.PER_ELEMENT:
        # Windows that are over take nothing more, and nobody is told of it where another one still does.
        behind = behind.filter(~ahead)
    placed = assign(behind.with_columns(ahead.alias(SURE)), ask.window).filter(max_timestamp() <= now.before)
    return (
        assign(fresh, striped(ask).window) if fresh.height else None,
        placed if placed.height else None,
    )


def read(
    held: Mapping[str, bytes],
    index: Index,
    came: Combined | None,
    late: pl.DataFrame | None,
    progress: Progress,
    ask: WindowedStep,
) -> Waiting:
    """The strips that elements come to, that windows need which end in this batch, or that late elements ask about."""
    if not shares(ask):
        return Waiting()
    span = slice_span(ask)
    there = index.store(STRIPS)
    numbers = due(there, progress)
    beside = _combined(unpack(held[BESIDE], BESIDE), ask) if index.store(BESIDE) else None
    coming = [each.rows for each in (came, beside) if each is not None]
    touched = Counter[int]()
    for rows in coming:
        touched.update(dict(slices_of(rows, (), span).value_counts().iter_rows()))
    stay = frozenset(n for n, many in touched.items() if _is_seldom(many, there.get(n)))
    if came is not None:
        numbers |= _numbers(came, span) - stay
    if late is not None and not _remembers(ask):
        asked = late.select(pl.col(START) // span, (pl.col(END) - 1) // span).unique().rows()
        numbers |= {n for n in there for first, last in asked if first <= n <= last}
    found = {n: _combined(unpack(held[_place(n)], _place(n)), ask) for n in sorted(numbers) if n in there}
    return Waiting(found, beside=beside, stay=stay)


def _is_seldom(many: int, entry: Slice | None) -> bool:
    """Whether so little comes to a slice that it is left as it is."""
    return entry is not None and entry.rows >= LARGE and many * SELDOM < entry.rows


def _combined(block: Block, ask: WindowedStep) -> Combined:
    items = {name.removeprefix(_ITEMS): each for name, each in block.frames.items() if name.startswith(_ITEMS)}
    return Combined(*in_rows(block.frames[STRIPS], items, ask))


def recall(
    kept: OpenWindows, waiting: Waiting, late: pl.DataFrame | None, keys: Sequence[str], ask: WindowedStep, now: Instant
) -> OpenWindows:
    """With rows for windows that have said nothing but their on-time pane, now that elements come to them late."""
    if late is None or not waiting.all or _remembers(ask):
        return kept
    names = identity(keys)
    wanted = late.filter(expires(ask) > now.before).select(names).unique()
    if kept.windows is not None:
        wanted = wanted.join(kept.windows.select(names), on=names, how="anti", nulls_equal=True)
    if wanted.is_empty():
        return kept
    inside = _inside(waiting.rows, wanted, keys)
    if inside.is_empty():
        return kept
    rows = on_time_before(merge_rows([inside], keys, ask), ask, now)
    items = dict(kept.items)
    if ask.accumulation is not Accumulation.DISCARDING:
        for name, frame in waiting.items(ask).items():
            mine = _inside(frame, wanted, keys)
            found = [each for each in (items.get(name), mine) if each is not None]
            items[name] = together(found, keys, items_of(ask)[name])
    windows = rows if kept.windows is None else pl.concat([kept.windows, rows], how="diagonal_relaxed")
    return OpenWindows(windows, items, kept.owed)


def _inside(strips: pl.DataFrame, windows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Strips, or items of them, as the windows' that hold them."""
    bounds = windows.rename({START: _FROM, END: _TO})
    joined = strips.join(bounds, on=list(keys), nulls_equal=True)
    inside = joined.filter((pl.col(START) >= pl.col(_FROM)) & (pl.col(START) < pl.col(_TO)))
    return inside.drop(START, END).rename({_FROM: START, _TO: END})


def add(waiting: Waiting, came: Combined | None, keys: Sequence[str], ask: WindowedStep) -> Waiting:
    """With what a batch brings. A slice that changes takes in what was beside it."""
    if came is None:
        return waiting
    span = slice_span(ask)
    later, fresh = _told_apart(came, waiting.stay, span)
    beside, changed = waiting.beside, _numbers(fresh, span)
    if beside is not None and changed:
        back, beside = _told_apart(beside, changed, span)
        fresh = concat_unmerged([each for each in (fresh, back) if each is not None])
    old = [waiting.slices[number] for number in sorted(changed & waiting.slices.keys())]
    whole = merged([*old, fresh], keys, ask)
    return Waiting(
        {**waiting.slices, **({} if whole is None else in_slices(whole, keys, ask))},
        changed,
        merged([beside, later], keys, ask),
        waiting.stay,
        is_new_beside=later is not None or beside is not waiting.beside,
    )


def in_slices(strips: Combined, keys: Sequence[str], ask: WindowedStep) -> dict[int, Combined]:
    """Strips apart by slice, each slice in order."""
    span = slice_span(ask)
    rows = _sliced(strips.rows, keys, span)
    items = {name: _sliced(each, keys, span) for name, each in strips.items.items()}
    return {
        number: Combined(mine, {name: parts[number] for name, parts in items.items() if number in parts})
        for number, mine in rows.items()
    }


def _sliced(frame: pl.DataFrame, keys: Sequence[str], span: int) -> dict[int, pl.DataFrame]:
    ordered = in_order(frame, keys)
    return by_slice(ordered, slices_of(ordered, keys, span))


def _numbers(strips: Combined | None, span: int) -> frozenset[int]:
    return frozenset() if strips is None else frozenset(slices_of(strips.rows, (), span).unique().to_list())


def _told_apart(strips: Combined, numbers: frozenset[int], span: int) -> tuple[Combined | None, Combined | None]:
    """What belongs to these slices, and what does not."""
    if not numbers & _numbers(strips, span):
        return None, strips
    frames = {"": strips.rows, **strips.items}
    belongs = {name: slices_of(frame, (), span).is_in([*numbers]) for name, frame in frames.items()}
    mine = {name: frame.filter(belongs[name]) for name, frame in frames.items()}
    others = {name: frame.filter(~belongs[name]) for name, frame in frames.items()}
    return _of(mine, strips.repeats), _of(others, strips.repeats)


def _of(frames: Frames, repeats: bool) -> Combined | None:
    left = dict(frames)
    rows = left.pop("")
    return Combined(rows, left, repeats) if rows.height else None


def ripen(waiting: Waiting, keys: Sequence[str], ask: WindowedStep, now: Instant) -> Ripe:
    """The windows that end while the watermark moves."""
    ends = sorted({window for each in waiting.all for window in _ending(each.rows, ask, now)})
    if not ends:
        return Ripe()
    rows, items = waiting.rows, waiting.items(ask)
    kept = [window for window in ends if _remembers(ask) and _expires(_over(window), ask) > now.after]
    told = ends[: len(ends) - len(kept)]
    said = spread(rows, items, told, keys, ask) if told else None
    windows = spread(rows, items, kept, keys, ask) if kept else None
    return Ripe(
        on_time(said, keys, ask, now) if said is not None and said.rows.height else None,
        windows if windows is not None and windows.rows.height else None,
    )


def _ending(rows: pl.DataFrame, ask: WindowedStep, now: Instant) -> Iterable[tuple[int, int]]:
    if now.before == now.after:
        return ()
    starts = rows[START].to_numpy()
    return windows_ending(ask, int(starts.min()), int(starts.max()), now.before, now.after)


def write(
    waiting: Waiting, index: Index, keys: Sequence[str], ask: WindowedStep, now: Instant
) -> tuple[dict[str, bytes | None], dict[str, Slices]]:
    """Write what changed, delete what is over, and return the entries of both stores in the index."""
    writes: dict[str, bytes | None] = {}
    known = index.store(STRIPS)
    entries = {n: entry for n, entry in known.items() if n not in waiting.slices}
    for number, strips in waiting.slices.items():
        due, hold, gone = _deadlines(strips.rows, ask, now)
        if gone <= now.after:
            writes |= {_place(number): None} if number in known else {}
            continue
        if number in waiting.changed:
            data = pack(Block(_frames(strips)))
            writes[_place(number)] = data
            entries[number] = Slice(strips.rows.height, len(data), due, None, hold)
        else:
            was = known[number]
            entries[number] = Slice(was.rows, was.size, due, None, hold)
    beside, entry = _write_beside(waiting, index, keys, ask, now)
    stores: dict[str, Slices] = {STRIPS: entries, BESIDE: {} if entry is None else {0: entry}}
    return writes | beside, {name: slices for name, slices in stores.items() if slices}


def _write_beside(
    waiting: Waiting, index: Index, keys: Sequence[str], ask: WindowedStep, now: Instant
) -> tuple[dict[str, bytes | None], Slice | None]:
    """What is beside slices, without what is over."""
    was, left = index.store(BESIDE).get(0), None if waiting.beside is None else _alive(waiting.beside, ask, now)
    if left is None:
        return {} if was is None else {BESIDE: None}, None
    due, hold, _ = _deadlines(left.rows, ask, now)
    if was is not None and not waiting.is_new_beside and left is waiting.beside:
        return {}, Slice(was.rows, was.size, due, None, hold)
    ordered = Combined(
        in_order(left.rows, keys),
        {name: in_order(each, keys) for name, each in left.items.items()},
    )
    data = pack(Block(_frames(ordered)))
    return {BESIDE: data}, Slice(left.rows.height, len(data), due, None, hold)


def _alive(strips: Combined, ask: WindowedStep, now: Instant) -> Combined | None:
    """Those that can still be asked for."""
    starts = strips.rows[START].unique().to_list()
    alive = [start for start in starts if _gone(start, ask) > now.after]
    if len(alive) == len(starts):
        return strips
    left = {name: each.filter(each[START].is_in(alive)) for name, each in {"": strips.rows, **strips.items}.items()}
    return _of(left, strips.repeats)


def _deadlines(rows: pl.DataFrame, ask: WindowedStep, now: Instant) -> tuple[int, int | None, int]:
    """When a slice is needed next, how far it lets time come, and when nothing in it can be asked for any more."""
    starts = rows[START].to_numpy()
    gone = _gone(int(starts.max()), ask)
    first = first_waiting(ask, now.after)
    waits = starts[starts >= first] if first is not None else starts[:0]
    if not len(waits):
        return gone, None, gone
    following = next_over(ask, int(waits.min()), now.after)
    return following, following, gone


def _gone(start: int, ask: WindowedStep) -> int:
    """When a strip that begins there cannot be asked for any more."""
    over = last_over(ask, start)
    return over if _remembers(ask) else _expires(over, ask)


def _over(window: tuple[int, int]) -> int:
    return FOREVER if window[1] == FOREVER else window[1] - 1


def _expires(over: int, ask: WindowedStep) -> int:
    """When a window is gone that such a watermark ends."""
    allowed = ask.lateness.allowed
    return FOREVER if allowed is None else min(over + allowed.ms, FOREVER)


def _frames(strips: Combined) -> Mapping[str, pl.DataFrame]:
    return {STRIPS: strips.rows, **{_ITEMS + name: each for name, each in strips.items.items()}}


def _place(number: int) -> str:
    return f"strips:{number}"
