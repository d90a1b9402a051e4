"""Read and write the slices of open windows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import polars as pl

from strandline.kernel.aggregation.accumulators import identity, items_of
from strandline.kernel.aggregation.aggregates import VALUE
from strandline.kernel.blocks.block import END, OFFSET, PARTITION, START, Frames
from strandline.kernel.operator import BatchTimes, Writes
from strandline.kernel.state import slice_deltas
from strandline.kernel.state.partitioning import among, ordered, slices_of, span_of
from strandline.kernel.state.slice_deltas import SliceChanges
from strandline.kernel.state.slice_rows import WINDOWS
from strandline.kernel.state.slice_store import (
    DUE_CLOCK,
    DUE_WATERMARK,
    HOLD,
    Slice,
    Slices,
    by_slice,
    pack_slice,
    read_slices,
)
from strandline.kernel.window.assign import expires, max_timestamp
from strandline.kernel.window.shared_slices import uses_shared_slices
from strandline.kernel.window.window_rows import ADDED, OpenWindows
from strandline.model.panes import Emit
from strandline.model.steps import WindowedStep
from strandline.model.windows import Count, Session

OWED: Final = "owed"
ITEMS: Final = "items:"
BOUNDS: Final = (START, END)
_ORDER: Final = (PARTITION, OFFSET, VALUE)
"""Columns that order the items of one window."""


def read_windows(
    held: Mapping[str, bytes],
    numbers: Iterable[int],
    slices: Slices | None = None,
    row_filter: Callable[[int, Frames], Frames] | None = None,
) -> OpenWindows:
    """Read the open windows of these slices with their items and pending retractions."""
    frames = read_slices(held, WINDOWS, numbers, slices, row_filter)
    items = {name.removeprefix(ITEMS): frame for name, frame in frames.items() if name.startswith(ITEMS)}
    return OpenWindows(frames.get(WINDOWS.rows), items, frames.get(OWED))


def write_windows(
    windows: OpenWindows,
    opened: Iterable[int],
    keys: Sequence[str],
    step: WindowedStep,
    deadlines: tuple[pl.Expr, pl.Expr],
    changing: Mapping[int, SliceChanges] | None = None,
) -> tuple[dict[str, bytes | None], dict[int, Slice]]:
    """Write every opened slice, delete empty slices, and return the index entries of the others.

    Slices in `changing` get a delta instead.
    """
    writes: dict[str, bytes | None] = {WINDOWS.place(number): None for number in opened}
    entries: dict[int, Slice] = {}
    span = span_of(step.window)
    due = (deadlines[0].alias(DUE_WATERMARK), deadlines[1].alias(DUE_CLOCK))
    rows = [each.with_columns(due) for each in (windows.windows, windows.fresh) if each is not None and each.height]
    # Items stay in order of arrival, so a replayed batch writes the same bytes.
    split = (
        {ITEMS + name: by_slice(frame, slices_of(frame, keys, span)) for name, frame in windows.items.items()}
        if rows
        else {}
    )
    if windows.pending is not None and rows:
        split[OWED] = _split(windows.pending, keys, span)
    changing = changing or {}
    for number, part in ((n, part) for each in rows for n, part in _split(each, keys, span).items()):
        if number in changing:
            deltas, entries[number] = slice_deltas.end(changing[number], part, identity(keys))
            writes |= deltas
            continue
        others = {name: parts[number] for name, parts in split.items() if number in parts}
        writes[WINDOWS.place(number)], entries[number] = pack_slice(WINDOWS, part, others)
    return writes, entries


def deleted_deltas(opened: Iterable[int], slices: Slices) -> Writes:
    """Delete the deltas of slices that are rewritten."""
    return {place: None for number in opened for place in WINDOWS.delta_places(number, slices[number].deltas)}


def in_order(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Sort rows by identity and position, so that the order is deterministic."""
    return ordered(frame, [*identity(keys), *(name for name in _ORDER if name in frame.columns)])


def _split(frame: pl.DataFrame, keys: Sequence[str], span: int | None) -> dict[int, pl.DataFrame]:
    """Split rows by slice, each slice in order."""
    return {number: in_order(part, keys) for number, part in by_slice(frame, slices_of(frame, keys, span)).items()}


def takes_deltas(step: WindowedStep) -> bool:
    """Tell whether slices may get deltas: each window is one row, independent of all others."""
    return not (isinstance(step.window, Session | Count) or uses_shared_slices(step) or items_of(step))


def begin_deltas(
    held: Mapping[str, bytes], slices: Slices, touched: Mapping[int, Sequence[pl.DataFrame]], keys: Sequence[str]
) -> dict[int, SliceChanges]:
    """Read the touched windows of slices that get a delta."""
    return slice_deltas.begin(held, WINDOWS, slices, touched, identity(keys), BOUNDS, (HOLD,))


def with_touched(windows: OpenWindows, changing: Mapping[int, SliceChanges]) -> OpenWindows:
    """Add the touched windows of slices with deltas to the windows of slices that were read whole."""
    frames = [each.touched for each in changing.values() if each.touched.height]
    if not frames:
        return windows
    known = [] if windows.windows is None else [windows.windows]
    joined = pl.concat([*known, *frames], how="diagonal_relaxed")
    return OpenWindows(joined, windows.items, windows.pending, windows.fresh)


def drop_expired(
    touched: Callable[[int], Sequence[pl.DataFrame]], keys: Sequence[str], step: WindowedStep, now: BatchTimes
) -> Callable[[int, Frames], Frames]:
    """Return a filter that drops expired windows that emit nothing more, before they are processed."""
    return partial(_keep_unexpired, touched=touched, keys=keys, step=step, now=now)


def _keep_unexpired(
    number: int,
    frames: Frames,
    touched: Callable[[int], Sequence[pl.DataFrame]],
    keys: Sequence[str],
    step: WindowedStep,
    now: BatchTimes,
) -> Frames:
    """Filter a fully expired slice to the windows that may still emit; keep other slices unchanged."""
    windows = frames[WINDOWS.rows]
    if step.final_pane is Emit.ALWAYS or not takes_deltas(step) or windows.height < slice_deltas.LARGE:
        return frames
    expires_at, end = windows.select(expires(step).max(), max_timestamp().max().alias(END)).row(0)
    if expires_at > now.after or end > now.before:  # some windows have not expired, or their on-time pane is due now
        return frames
    incoming = touched(number)
    wanted = slice_deltas.wanted_rows(windows, incoming, identity(keys), BOUNDS) if incoming else None
    is_touched = pl.lit(False) if wanted is None else among(windows, wanted)
    return {WINDOWS.rows: windows.filter((pl.col(ADDED) > 0) | pl.col(HOLD).is_not_null() | is_touched)}
