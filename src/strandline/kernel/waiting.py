"""Strips that wait: the elements of overlapping windows, kept once, until the last of their windows is gone.

    "strips:<n>"    the strips of slice n, with their items

A window has no row of its own while it waits for its end. When the watermark passes that, its contents are spread from
its strips, and it speaks. It needs no row after that either, as long as its strips can tell what it has said: nothing
but its on-time pane. Only when an element comes late is such a window recalled, and has a row from then on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import polars as pl

from strandline.kernel import state
from strandline.kernel.blocks import END, START, Block, pack, unpack
from strandline.kernel.contents import Combined, Frames, identity, items_of, merge_rows, merged, together
from strandline.kernel.older import in_rows
from strandline.kernel.panes import Instant, on_time, on_time_before
from strandline.kernel.prepare import SURE
from strandline.kernel.slices import slices_of
from strandline.kernel.spread import spread
from strandline.kernel.state import Index, Kept, Slice
from strandline.kernel.strips import (
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
from strandline.kernel.watermarks import FOREVER, Progress
from strandline.kernel.windows import assign, expires, max_timestamp
from strandline.model.panes import Accumulation, Emit
from strandline.model.steps import WindowedStep
from strandline.model.triggers import Never

STRIPS: Final = "strips"
_ITEMS: Final = "items:"
_FROM, _TO = "@from", "@to"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Slices of strips that were read, and which of them are no longer as they were."""

    slices: Mapping[int, Combined] = field(default_factory=dict)
    changed: frozenset[int] = frozenset()

    @property
    def rows(self) -> pl.DataFrame:
        return pl.concat([each.rows for each in self.slices.values()], how="diagonal_relaxed")

    def items(self, ask: WindowedStep) -> Frames:
        held = {
            name: [each.items[name] for each in self.slices.values() if name in each.items] for name in items_of(ask)
        }
        return {name: pl.concat(found, how="diagonal_relaxed") for name, found in held.items() if found}


@dataclass(frozen=True, slots=True)
class Ripe:
    """What windows that have just ended say, and those of them that must be kept by themselves from now on."""

    panes: pl.DataFrame | None = None
    windows: Combined | None = None


@cache
def _remembers(ask: WindowedStep) -> bool:
    """Whether a window that has ended needs a row even if nothing comes any more: strips cannot tell what it must."""
    return state.keeps_told(ask) or ask.final_pane is Emit.ALWAYS or isinstance(ask.trigger, Never)


def apart(rows: pl.DataFrame, ask: WindowedStep, now: Instant) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """Elements with windows still ahead, in strips; and those with windows that are over, beside each of these."""
    ahead = max_timestamp(last_end(ask)) > now.before
    fresh, behind = rows.filter(ahead), rows.filter(first_over(ask) <= now.before)
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
    numbers = state.due(index.strips, progress)
    if came is not None:
        numbers |= {int(n) for n in slices_of(came.rows, (), span).unique()}
    if late is not None and not _remembers(ask):
        asked = late.select(pl.col(START) // span, (pl.col(END) - 1) // span).unique().rows()
        numbers |= {n for n in index.strips for first, last in asked if first <= n <= last}
    found = {n: _combined(unpack(held[_place(n)], _place(n)), ask) for n in sorted(numbers) if n in index.strips}
    return Waiting(found)


def _combined(block: Block, ask: WindowedStep) -> Combined:
    items = {name.removeprefix(_ITEMS): each for name, each in block.frames.items() if name.startswith(_ITEMS)}
    return Combined(*in_rows(block.frames[STRIPS], items, ask))


def recall(
    kept: Kept, waiting: Waiting, late: pl.DataFrame | None, keys: Sequence[str], ask: WindowedStep, now: Instant
) -> Kept:
    """With rows for windows that have said nothing but their on-time pane, now that elements come to them late."""
    if late is None or not waiting.slices or _remembers(ask):
        return kept
    names = identity(keys)
    wanted = late.filter(expires(ask) > now.before).select(names).unique()
    if kept.windows is not None:
        wanted = wanted.join(kept.windows.select(names), on=names, how="anti", nulls_equal=True)
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
    return Kept(windows, items, kept.owed)


def _inside(strips: pl.DataFrame, windows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Strips, or items of them, as the windows' that hold them."""
    bounds = windows.rename({START: _FROM, END: _TO})
    joined = strips.join(bounds, on=list(keys), nulls_equal=True)
    inside = joined.filter((pl.col(START) >= pl.col(_FROM)) & (pl.col(START) < pl.col(_TO)))
    return inside.drop(START, END).rename({_FROM: START, _TO: END})


def add(waiting: Waiting, came: Combined | None, keys: Sequence[str], ask: WindowedStep) -> Waiting:
    """With what a batch brings."""
    if came is None:
        return waiting
    span = slice_span(ask)
    rows = state.by_slice(came.rows, keys, span)
    items = {name: state.by_slice(frame, keys, span) for name, frame in came.items.items()}
    slices = dict(waiting.slices)
    for number, mine in rows.items():
        new = Combined(mine, {name: parts[number] for name, parts in items.items() if number in parts})
        slices[number] = merged([slices.get(number), new], keys, ask) or new
    return Waiting(slices, waiting.changed | rows.keys())


def ripen(waiting: Waiting, keys: Sequence[str], ask: WindowedStep, now: Instant) -> Ripe:
    """The windows that end while the watermark moves."""
    ends = sorted({window for each in waiting.slices.values() for window in _ending(each.rows, ask, now)})
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
) -> tuple[dict[str, bytes | None], dict[int, Slice]]:
    """The bytes of the slices that changed, None where all is over, and what the index says of those that remain."""
    writes: dict[str, bytes | None] = {}
    entries = {n: entry for n, entry in index.strips.items() if n not in waiting.slices}
    for number, strips in waiting.slices.items():
        due, hold, gone = _deadlines(strips.rows, ask, now)
        if gone <= now.after:
            writes |= {_place(number): None} if number in index.strips else {}
            continue
        if number in waiting.changed:
            data = pack(Block(_frames(strips, keys)))
            writes[_place(number)] = data
            entries[number] = Slice(strips.rows.height, len(data), due, None, hold)
        else:
            was = index.strips[number]
            entries[number] = Slice(was.rows, was.size, due, None, hold)
    return writes, entries


def _deadlines(rows: pl.DataFrame, ask: WindowedStep, now: Instant) -> tuple[int, int | None, int]:
    """When a slice is needed next, how far it lets time come, and when nothing in it can be asked for any more."""
    starts = rows[START].to_numpy()
    over = last_over(ask, int(starts.max()))
    gone = over if _remembers(ask) else _expires(over, ask)
    first = first_waiting(ask, now.after)
    waits = starts[starts >= first] if first is not None else starts[:0]
    if not len(waits):
        return gone, None, gone
    following = next_over(ask, int(waits.min()), now.after)
    return following, following, gone


def _over(window: tuple[int, int]) -> int:
    return FOREVER if window[1] == FOREVER else window[1] - 1


def _expires(over: int, ask: WindowedStep) -> int:
    """When a window is gone that such a watermark ends."""
    allowed = ask.lateness.allowed
    return FOREVER if allowed is None else min(over + allowed.ms, FOREVER)


def _frames(strips: Combined, keys: Sequence[str]) -> Mapping[str, pl.DataFrame]:
    frames = {STRIPS: strips.rows, **{_ITEMS + name: each for name, each in strips.items.items()}}
    return {name: state.in_order(frame, keys) for name, frame in frames.items()}


def _place(number: int) -> str:
    return f"strips:{number}"
