"""Store elements of overlapping windows once, by shared slice, until the last of their windows expires.

    "strips:<n>"     the shared slices of state slice n, with their items
    "strips:beside"  the side block: additions to state slices that change little, and so are not rewritten

A window has no row of its own before its end. When the watermark passes the end, the contents of the window are
combined from its shared slices, and it emits its on-time pane. It still needs no row afterwards, because its shared
slices give the same contents again. Only a late element restores such a window as a row.
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
from strandline.kernel.operator import BatchTimes
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
"""Shared slices from which on a state slice is left unchanged and additions go to the side block."""
MIN_RATIO: Final = 4
"""A state slice takes in its additions when they reach one in this many of its rows."""
_ITEMS: Final = "items:"
_FROM, _TO = "@from", "@to"


@dataclass(frozen=True, slots=True)
class SharedSliceState:
    """State slices read in a batch, the side block, and which of them changed."""

    slices: Mapping[int, Combined] = field(default_factory=dict)
    changed: frozenset[int] = frozenset()
    beside: Combined | None = None
    unmerged: frozenset[int] = frozenset()
    """State slices that are not rewritten: their additions go to the side block."""
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
    """Panes of windows that have just ended, and the windows that need a row of their own from now on."""

    panes: pl.DataFrame | None = None
    windows: Combined | None = None


@cache
def _keeps_ended_windows(step: WindowedStep) -> bool:
    """Tell whether an ended window needs a row even without late elements, for state that shared slices lack."""
    return keeps_last_values(step) or step.final_pane is Emit.ALWAYS or isinstance(step.trigger, Never)


def split_by_window_end(
    rows: pl.DataFrame, step: WindowedStep, now: BatchTimes
) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """Split elements: by shared slice for windows that have not ended, by window for windows that have."""
    ahead = max_timestamp(last_end(step)) > now.before
    fresh, behind = rows.filter(ahead), rows.filter(first_end_watermark(step) <= now.before)
    if step.lateness.allowed == ZERO and step.lateness.rows is LateRows.PER_ELEMENT:
        # Ended windows have expired. The late output omits an element that another window still accepts.
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
    """Read the state slices that elements touch, that ending windows need, or that late elements need."""
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
    """Tell whether a state slice gets so few additions that it is not rewritten."""
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
    now: BatchTimes,
) -> OpenWindows:
    """Restore the rows of ended windows that get late elements: they have emitted their on-time pane only."""
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
    """Assign shared slices, or their items, to the windows that contain them."""
    bounds = windows.rename({START: _FROM, END: _TO})
    joined = shared.join(bounds, on=list(keys), nulls_equal=True)
    inside = joined.filter((pl.col(START) >= pl.col(_FROM)) & (pl.col(START) < pl.col(_TO)))
    return inside.drop(START, END).rename({_FROM: START, _TO: END})


def add(state: SharedSliceState, added: Combined | None, keys: Sequence[str], step: WindowedStep) -> SharedSliceState:
    """Add the elements of a batch. A state slice that is rewritten takes in its rows of the side block."""
    if added is None:
        return state
    span = slice_span(step)
    delayed, fresh = _split_by_slice(added, state.unmerged, span)
    beside, changed = state.beside, _slice_numbers(fresh, span)
    if beside is not None and changed:
        returned, beside = _split_by_slice(beside, changed, span)
        fresh = concat_unmerged([each for each in (fresh, returned) if each is not None])
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
    """Split shared slices by state slice, each in order."""
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
    """Split rows by whether they belong to these state slices."""
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


def end_windows(state: SharedSliceState, keys: Sequence[str], step: WindowedStep, now: BatchTimes) -> EndedWindows:
    """Combine the windows that end while the watermark moves."""
    ends = sorted({window for each in state.all for window in _ending(each.rows, step, now)})
    if not ends:
        return EndedWindows()
    rows, items = state.rows, state.items(step)
    kept = [
        window for window in ends if _keeps_ended_windows(step) and _expiry(_last_instant(window), step) > now.after
    ]
    emitted = ends[: len(ends) - len(kept)]
    contents = combine_into_windows(rows, items, emitted, keys, step) if emitted else None
    windows = combine_into_windows(rows, items, kept, keys, step) if kept else None
    return EndedWindows(
        on_time_panes(contents, keys, step, now) if contents is not None and contents.rows.height else None,
        windows if windows is not None and windows.rows.height else None,
    )


def _ending(rows: pl.DataFrame, step: WindowedStep, now: BatchTimes) -> Iterable[tuple[int, int]]:
    if now.before == now.after:
        return ()
    starts = rows[START].to_numpy()
    return windows_ending(step, int(starts.min()), int(starts.max()), now.before, now.after)


def write(
    state: SharedSliceState, index: Index, keys: Sequence[str], step: WindowedStep, now: BatchTimes
) -> tuple[dict[str, bytes | None], dict[str, Slices]]:
    """Write changed state slices, delete expired ones, and return the index entries of both stores."""
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
    state: SharedSliceState, index: Index, keys: Sequence[str], step: WindowedStep, now: BatchTimes
) -> tuple[dict[str, bytes | None], Slice | None]:
    """Write the side block without expired rows."""
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


def _unexpired(shared: Combined, step: WindowedStep, now: BatchTimes) -> Combined | None:
    """Drop shared slices that no window can need any more."""
    starts = shared.rows[START].unique().to_list()
    alive = [start for start in starts if _expiry_of_start(start, step) > now.after]
    if len(alive) == len(starts):
        return shared
    left = {name: each.filter(each[START].is_in(alive)) for name, each in {"": shared.rows, **shared.items}.items()}
    return _combined_of(left, shared.repeats)


def _deadlines(rows: pl.DataFrame, step: WindowedStep, now: BatchTimes) -> tuple[int, int | None, int]:
    """Return when a state slice is due next, its hold on the output watermark, and when all of it expires."""
    starts = rows[START].to_numpy()
    expires_at = _expiry_of_start(int(starts.max()), step)
    first = first_open_instant(step, now.after)
    has_no_early_panes = starts[starts >= first] if first is not None else starts[:0]
    if not len(has_no_early_panes):
        return expires_at, None, expires_at
    following = next_end_watermark(step, int(has_no_early_panes.min()), now.after)
    return following, following, expires_at


def _expiry_of_start(start: int, step: WindowedStep) -> int:
    """Return the watermark from which on no window needs the shared slice with this start."""
    last = last_end_watermark(step, start)
    return last if _keeps_ended_windows(step) else _expiry(last, step)


def _last_instant(window: tuple[int, int]) -> int:
    return FOREVER if window[1] == FOREVER else window[1] - 1


def _expiry(last: int, step: WindowedStep) -> int:
    """Return the expiry of a window with this last instant."""
    allowed = step.lateness.allowed
    return FOREVER if allowed is None else min(last + allowed.ms, FOREVER)


def _frames(shared: Combined) -> Mapping[str, pl.DataFrame]:
    return {STRIPS: shared.rows, **{_ITEMS + name: each for name, each in shared.items.items()}}


def _place(number: int) -> str:
    return f"strips:{number}"
