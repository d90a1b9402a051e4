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
    identity,
    items_of,
    merge_rows,
    merged,
    side_by_side,
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
from strandline.kernel.window.panes import after_on_time_pane, on_time_panes
from strandline.kernel.window.prepare import SURE
from strandline.kernel.window.shared_slices import (
    first_end_watermark,
    first_open_instant,
    last_end,
    last_end_watermark,
    next_end_watermark,
    slice_span,
    step_over_slices,
    uses_shared_slices,
    windows_ending,
)
from strandline.kernel.window.state_migrations import in_rows
from strandline.kernel.window.window_rows import OpenWindows, keeps_last_values
from strandline.kernel.window.window_slices import in_order
from strandline.kernel.window.windows_from_slices import combine_into_windows
from strandline.model.elements import ZERO
from strandline.model.panes import Accumulation, Emit, LateRows
from strandline.model.steps import WindowedStep
from strandline.model.triggers import Never

STRIPS: Final = SHARED.name
LARGE: Final = 256
"""So many strips of a slice make it worth the trouble to leave them as they are."""
MIN_RATIO: Final = 4
"""What is beside a slice is less than one in so many."""
_ITEMS: Final = "items:"
_FROM, _TO = "@from", "@to"


@dataclass(frozen=True, slots=True)
class SharedSliceState:
    """Slices of strips that were read, what is beside slices, and which of all that is no longer as it was."""

    slices: Mapping[int, Combined] = field(default_factory=dict)
    changed: frozenset[int] = frozenset()
    beside: Combined | None = None
    unmerged: frozenset[int] = frozenset()
    """The slices that stay as they are: what comes to them goes beside."""
    side_block_changed: bool = False

    @property
    def all(self) -> Sequence[Combined]:
        return [*self.slices.values(), *(() if self.beside is None else (self.beside,))]

    @property
    def rows(self) -> pl.DataFrame:
        return stacked([each.rows for each in self.all])

    def items(self, step: WindowedStep) -> Frames:
        held = {name: [each.items[name] for each in self.all if name in each.items] for name in items_of(step)}
        return {name: stacked(found) for name, found in held.items() if found}


@dataclass(frozen=True, slots=True)
class EndedWindows:
    """What windows that have just ended say, and those of them that must be kept by themselves from now on."""

    panes: pl.DataFrame | None = None
    windows: Combined | None = None


@cache
def _keeps_ended_windows(step: WindowedStep) -> bool:
    """Whether a window that has ended needs a row even if nothing comes any more: strips cannot tell what it must."""
    return keeps_last_values(step) or step.final_pane is Emit.ALWAYS or isinstance(step.trigger, Never)


def split_by_window_end(
    rows: pl.DataFrame, step: WindowedStep, now: Instant
) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """Elements with windows still ahead, in strips; and those with windows that are over, beside each of these."""
    ahead = max_timestamp(last_end(step)) > now.before
    fresh, behind = rows.filter(ahead), rows.filter(first_end_watermark(step) <= now.before)
    if step.lateness.allowed == ZERO and step.lateness.rows is LateRows.PER_ELEMENT:
        # Windows that are over take nothing more, and nobody is told of it where another one still does.
        behind = behind.filter(~ahead)
    placed = assign(behind.with_columns(ahead.alias(SURE)), step.window).filter(max_timestamp() <= now.before)
    return (
        assign(fresh, step_over_slices(step).window) if fresh.height else None,
        placed if placed.height else None,
    )


def read(
    held: Mapping[str, bytes],
    index: Index,
    added: Combined | None,
    late: pl.DataFrame | None,
    progress: Progress,
    step: WindowedStep,
) -> SharedSliceState:
    """The strips that elements come to, that windows need which end in this batch, or that late elements ask about."""
    if not uses_shared_slices(step):
        return SharedSliceState()
    span = slice_span(step)
    stored = index.store(STRIPS)
    numbers = due(stored, progress)
    beside = _combined(unpack(held[BESIDE], BESIDE), step) if index.store(BESIDE) else None
    incoming = [each.rows for each in (added, beside) if each is not None]
    touched = Counter[int]()
    for rows in incoming:
        touched.update(dict(slices_of(rows, (), span).value_counts().iter_rows()))
    unmerged = frozenset(n for n, changed_rows in touched.items() if _is_small_change(changed_rows, stored.get(n)))
    if added is not None:
        numbers |= _slice_numbers(added, span) - unmerged
    if late is not None and not _keeps_ended_windows(step):
        ranges = late.select(pl.col(START) // span, (pl.col(END) - 1) // span).unique().rows()
        numbers |= {n for n in stored for first, last in ranges if first <= n <= last}
    found = {n: _combined(unpack(held[_place(n)], _place(n)), step) for n in sorted(numbers) if n in stored}
    return SharedSliceState(found, beside=beside, unmerged=unmerged)


def _is_small_change(changed_rows: int, entry: Slice | None) -> bool:
    """Whether so little comes to a slice that it is left as it is."""
    return entry is not None and entry.rows >= LARGE and changed_rows * MIN_RATIO < entry.rows


def _combined(block: Block, step: WindowedStep) -> Combined:
    items = {name.removeprefix(_ITEMS): each for name, each in block.frames.items() if name.startswith(_ITEMS)}
    return Combined(*in_rows(block.frames[STRIPS], items, step))


def restore_ended_windows(
    open_windows: OpenWindows,
    state: SharedSliceState,
    late: pl.DataFrame | None,
    keys: Sequence[str],
    step: WindowedStep,
    now: Instant,
) -> OpenWindows:
    """With rows for windows that have said nothing but their on-time pane, now that elements come to them late."""
    if late is None or not state.all or _keeps_ended_windows(step):
        return open_windows
    names = identity(keys)
    wanted = late.filter(expires(step) > now.before).select(names).unique()
    if open_windows.windows is not None:
        wanted = wanted.join(open_windows.windows.select(names), on=names, how="anti", nulls_equal=True)
    if wanted.is_empty():
        return open_windows
    inside = _rows_in_windows(state.rows, wanted, keys)
    if inside.is_empty():
        return open_windows
    rows = after_on_time_pane(merge_rows([inside], keys, step), step, now)
    items = dict(open_windows.items)
    if step.accumulation is not Accumulation.DISCARDING:
        for name, frame in state.items(step).items():
            selected = _rows_in_windows(frame, wanted, keys)
            found = [each for each in (items.get(name), selected) if each is not None]
            items[name] = together(found, keys, items_of(step)[name])
    windows = rows if open_windows.windows is None else pl.concat([open_windows.windows, rows], how="diagonal_relaxed")
    return OpenWindows(windows, items, open_windows.pending)


def _rows_in_windows(shared: pl.DataFrame, windows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Strips, or items of them, as the windows' that hold them."""
    bounds = windows.rename({START: _FROM, END: _TO})
    joined = shared.join(bounds, on=list(keys), nulls_equal=True)
    inside = joined.filter((pl.col(START) >= pl.col(_FROM)) & (pl.col(START) < pl.col(_TO)))
    return inside.drop(START, END).rename({_FROM: START, _TO: END})


def add(state: SharedSliceState, added: Combined | None, keys: Sequence[str], step: WindowedStep) -> SharedSliceState:
    """With what a batch brings. A slice that changes takes in what was beside it."""
    if added is None:
        return state
    span = slice_span(step)
    delayed, fresh = _split_by_slice(added, state.unmerged, span)
    beside, changed = state.beside, _slice_numbers(fresh, span)
    if beside is not None and changed:
        returned, beside = _split_by_slice(beside, changed, span)
        fresh = side_by_side([each for each in (fresh, returned) if each is not None])
    old = [state.slices[number] for number in sorted(changed & state.slices.keys())]
    whole = merged([*old, fresh], keys, step)
    return SharedSliceState(
        {**state.slices, **({} if whole is None else in_slices(whole, keys, step))},
        changed,
        merged([beside, delayed], keys, step),
        state.unmerged,
        side_block_changed=delayed is not None or beside is not state.beside,
    )


def in_slices(shared: Combined, keys: Sequence[str], step: WindowedStep) -> dict[int, Combined]:
    """Strips apart by slice, each slice in order."""
    span = slice_span(step)
    rows = _split_rows(shared.rows, keys, span)
    items = {name: _split_rows(each, keys, span) for name, each in shared.items.items()}
    return {
        number: Combined(selected, {name: parts[number] for name, parts in items.items() if number in parts})
        for number, selected in rows.items()
    }


def _split_rows(frame: pl.DataFrame, keys: Sequence[str], span: int) -> dict[int, pl.DataFrame]:
    ordered = in_order(frame, keys)
    return by_slice(ordered, slices_of(ordered, keys, span))


def _slice_numbers(shared: Combined | None, span: int) -> frozenset[int]:
    return frozenset() if shared is None else frozenset(slices_of(shared.rows, (), span).unique().to_list())


def _split_by_slice(shared: Combined, numbers: frozenset[int], span: int) -> tuple[Combined | None, Combined | None]:
    """What belongs to these slices, and what does not."""
    if not numbers & _slice_numbers(shared, span):
        return None, shared
    frames = {"": shared.rows, **shared.items}
    belongs = {name: slices_of(frame, (), span).is_in([*numbers]) for name, frame in frames.items()}
    selected = {name: frame.filter(belongs[name]) for name, frame in frames.items()}
    others = {name: frame.filter(~belongs[name]) for name, frame in frames.items()}
    return _combined_of(selected, shared.repeats), _combined_of(others, shared.repeats)


def _combined_of(frames: Frames, repeats: bool) -> Combined | None:
    left = dict(frames)
    rows = left.pop("")
    return Combined(rows, left, repeats) if rows.height else None


def end_windows(state: SharedSliceState, keys: Sequence[str], step: WindowedStep, now: Instant) -> EndedWindows:
    """The windows that end while the watermark moves."""
    ends = sorted({window for each in state.all for window in _ending(each.rows, step, now)})
    if not ends:
        return EndedWindows()
    rows, items = state.rows, state.items(step)
    open_windows = [
        window for window in ends if _keeps_ended_windows(step) and _expiry(_last_instant(window), step) > now.after
    ]
    emitted = ends[: len(ends) - len(open_windows)]
    contents = combine_into_windows(rows, items, emitted, keys, step) if emitted else None
    windows = combine_into_windows(rows, items, open_windows, keys, step) if open_windows else None
    return EndedWindows(
        on_time_panes(contents, keys, step, now) if contents is not None and contents.rows.height else None,
        windows if windows is not None and windows.rows.height else None,
    )


def _ending(rows: pl.DataFrame, step: WindowedStep, now: Instant) -> Iterable[tuple[int, int]]:
    if now.before == now.after:
        return ()
    starts = rows[START].to_numpy()
    return windows_ending(step, int(starts.min()), int(starts.max()), now.before, now.after)


def write(
    state: SharedSliceState, index: Index, keys: Sequence[str], step: WindowedStep, now: Instant
) -> tuple[dict[str, bytes | None], dict[str, Slices]]:
    """Write what changed, delete what is over, and return the entries of both stores in the index."""
    writes: dict[str, bytes | None] = {}
    known = index.store(STRIPS)
    entries = {n: entry for n, entry in known.items() if n not in state.slices}
    for number, shared in state.slices.items():
        due, hold, expires_at = _deadlines(shared.rows, step, now)
        if expires_at <= now.after:
            writes |= {_place(number): None} if number in known else {}
            continue
        if number in state.changed:
            data = pack(Block(_frames(shared)))
            writes[_place(number)] = data
            entries[number] = Slice(shared.rows.height, len(data), due, None, hold)
        else:
            previous = known[number]
            entries[number] = Slice(previous.rows, previous.size, due, None, hold)
    beside, entry = _write_beside(state, index, keys, step, now)
    stores: dict[str, Slices] = {STRIPS: entries, BESIDE: {} if entry is None else {0: entry}}
    return writes | beside, {name: slices for name, slices in stores.items() if slices}


def _write_beside(
    state: SharedSliceState, index: Index, keys: Sequence[str], step: WindowedStep, now: Instant
) -> tuple[dict[str, bytes | None], Slice | None]:
    """What is beside slices, without what is over."""
    previous, left = index.store(BESIDE).get(0), None if state.beside is None else _unexpired(state.beside, step, now)
    if left is None:
        return {} if previous is None else {BESIDE: None}, None
    due, hold, _ = _deadlines(left.rows, step, now)
    if previous is not None and not state.side_block_changed and left is state.beside:
        return {}, Slice(previous.rows, previous.size, due, None, hold)
    ordered = Combined(
        in_order(left.rows, keys),
        {name: in_order(each, keys) for name, each in left.items.items()},
    )
    data = pack(Block(_frames(ordered)))
    return {BESIDE: data}, Slice(left.rows.height, len(data), due, None, hold)


def _unexpired(shared: Combined, step: WindowedStep, now: Instant) -> Combined | None:
    """Those that can still be asked for."""
    starts = shared.rows[START].unique().to_list()
    alive = [start for start in starts if _expiry_of_start(start, step) > now.after]
    if len(alive) == len(starts):
        return shared
    left = {name: each.filter(each[START].is_in(alive)) for name, each in {"": shared.rows, **shared.items}.items()}
    return _combined_of(left, shared.repeats)


def _deadlines(rows: pl.DataFrame, step: WindowedStep, now: Instant) -> tuple[int, int | None, int]:
    """When a slice is needed next, how far it lets time come, and when nothing in it can be asked for any more."""
    starts = rows[START].to_numpy()
    expires_at = _expiry_of_start(int(starts.max()), step)
    first = first_open_instant(step, now.after)
    has_no_early_panes = starts[starts >= first] if first is not None else starts[:0]
    if not len(has_no_early_panes):
        return expires_at, None, expires_at
    following = next_end_watermark(step, int(has_no_early_panes.min()), now.after)
    return following, following, expires_at


def _expiry_of_start(start: int, step: WindowedStep) -> int:
    """When a strip that begins there cannot be asked for any more."""
    last = last_end_watermark(step, start)
    return last if _keeps_ended_windows(step) else _expiry(last, step)


def _last_instant(window: tuple[int, int]) -> int:
    return FOREVER if window[1] == FOREVER else window[1] - 1


def _expiry(last: int, step: WindowedStep) -> int:
    """When a window is gone that such a watermark ends."""
    allowed = step.lateness.allowed
    return FOREVER if allowed is None else min(last + allowed.ms, FOREVER)


def _frames(shared: Combined) -> Mapping[str, pl.DataFrame]:
    return {STRIPS: shared.rows, **{_ITEMS + name: each for name, each in shared.items.items()}}


def _place(number: int) -> str:
    return f"strips:{number}"
