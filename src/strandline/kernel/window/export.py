"""Import exported window state: adapt it to a definition, list what it lacks, write it as blocks.

Frames of an export:

"windows", "items:<name>", "owed"     open windows, their items, panes of merged sessions still to be retracted
"strips", "strips:items:<name>"       shared slices of overlapping windows
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from strandline.kernel.aggregation.accumulators import Combined, identity, merged, parts_of
from strandline.kernel.blocks.block import END, START
from strandline.kernel.operator import BatchTimes, Exported, Fit
from strandline.kernel.state.slice_rows import WINDOWS as STORE
from strandline.kernel.state.slice_store import INDEX, Index, write_index
from strandline.kernel.watermarks import FOREVER
from strandline.kernel.window import shared_slice_store, triggers
from strandline.kernel.window.panes import RETRACTION, deadlines
from strandline.kernel.window.shared_slice_store import STRIPS, SharedSliceState
from strandline.kernel.window.shared_slices import uses_shared_slices
from strandline.kernel.window.state_migrations import in_rows
from strandline.kernel.window.window_rows import LAST_VALUE, NON_EARLY_COUNT, OpenWindows, initial
from strandline.kernel.window.window_slices import OWED, write_windows
from strandline.model.steps import WindowedStep
from strandline.model.windows import Count

WINDOWS: Final = STORE.rows
ITEMS: Final = "items:"
SHARED: Final = f"{STRIPS}:"

Frames = Mapping[str, pl.DataFrame]


def fitted(exported: Exported, step: WindowedStep, fit: Fit) -> Exported:
    """Adapt exported state to another definition of its step.

    A new aggregate starts empty in open windows. A removed aggregate is dropped. A new trigger starts from its initial
    state.
    """
    frames = {
        name: frame for name, frame in _migrated(exported.frames, step).items() if not _items_of(name, fit.removed)
    }
    for place in (WINDOWS, STRIPS, OWED):
        if place in frames:
            rows = frames[place].drop(_columns_of(frames[place], fit.removed, step))
            empty = [] if place == OWED else [part for part in parts_of(step) if part.name not in rows.columns]
            frames[place] = rows.with_columns(part.nothing.alias(part.name) for part in empty)
    if fit.new_trigger and WINDOWS in frames:
        old = [
            name for name in frames[WINDOWS].columns if name == triggers.ROOT or name.startswith(f"{triggers.ROOT}.")
        ]
        frames[WINDOWS] = (
            frames[WINDOWS].drop(old).with_columns(**triggers.restarted(step.trigger, pl.col(NON_EARLY_COUNT) > 0))
        )
    return replace(exported, frames=frames)


def _migrated(frames: Frames, step: WindowedStep) -> Frames:
    """Migrate frames that an older release may have written."""
    now = dict(frames)
    for place, before in ((WINDOWS, ""), (STRIPS, SHARED)):
        if place in frames:
            items = _items(frames, before)
            now[place], left = in_rows(frames[place], items, step)
            now = {name: each for name, each in now.items() if name not in {f"{before}{ITEMS}{n}" for n in items}}
            now |= {f"{before}{ITEMS}{name}": each for name, each in left.items()}
    return now


def missing(exported: Exported, keys: Sequence[str], step: WindowedStep) -> list[str]:
    """List what a step needs and the exported frames lack, as readable texts."""
    found = []
    for place in (WINDOWS, STRIPS):
        rows = exported.frames.get(place)
        if rows is None:
            continue
        needed = [*keys, START, END, *(part.name for part in parts_of(step))]
        needed += list(initial(step)) if place == WINDOWS else []
        found += [f"{place} have no column {name}" for name in needed if name not in rows.columns]
    if STRIPS in exported.frames and not uses_shared_slices(step):
        found.append("the exported windows are kept in shared slices, and this step keeps each window in its own row")
    elif STRIPS not in exported.frames and WINDOWS in exported.frames and uses_shared_slices(step):
        found.append("each exported window is kept in its own row, and this step keeps windows in shared slices")
    return found


def instant(exported: Exported) -> BatchTimes:
    """Return the watermark and clock at which the state was exported."""
    at, clock = exported.progress.watermark, exported.progress.clock
    return BatchTimes(at, at, clock, clock, exported.batch_number)


def blocks_of(exported: Exported, keys: Sequence[str], step: WindowedStep) -> dict[str, bytes]:
    """Write the state of one key group as the operator itself would have written it."""
    now = instant(exported)
    open_windows = OpenWindows(exported.frames.get(WINDOWS), _items(exported.frames, ""), exported.frames.get(OWED))
    due = (pl.lit(FOREVER), pl.lit(None, pl.Int64)) if isinstance(step.window, Count) else deadlines(step, now)
    writes, slices = write_windows(open_windows, (), keys, step, due)
    shared, stores = shared_slice_store.write(_shared_slices(exported.frames, keys, step), Index(), keys, step, now)
    found = {place: data for place, data in {**writes, **shared}.items() if data is not None}
    index = Index(exported.progress, exported.batch_number, {STORE.name: slices, **stores})
    return {**found, INDEX: write_index(index, found)}


def _shared_slices(frames: Frames, keys: Sequence[str], step: WindowedStep) -> SharedSliceState:
    if STRIPS not in frames:
        return SharedSliceState()
    rows = frames[STRIPS]
    # The side block may have a second row for a shared slice that its state slice has too.
    repeats = bool(rows.select(identity(keys)).is_duplicated().any())
    whole = merged([Combined(rows, _items(frames, SHARED), repeats)], keys, step)
    slices = {} if whole is None else shared_slice_store.in_slices(whole, keys, step)
    return SharedSliceState(slices, frozenset(slices))


def _items(frames: Frames, before: str) -> dict[str, pl.DataFrame]:
    start = before + ITEMS
    return {name.removeprefix(start): frame for name, frame in frames.items() if name.startswith(start)}


def _items_of(name: str, aggregates: Sequence[str]) -> bool:
    """Tell whether a frame contains the items of one of these aggregates."""
    return any(name in (f"{ITEMS}{each}", f"{SHARED}{ITEMS}{each}") for each in aggregates)


def _columns_of(frame: pl.DataFrame, aggregates: Sequence[str], step: WindowedStep) -> list[str]:
    """Return the columns of removed aggregates that no remaining aggregate needs."""
    needed = {part.name for part in parts_of(step)} | {name for name, _ in step.aggregates}
    also = {each for each in aggregates if RETRACTION in frame.columns}
    stored = [
        name
        for each in aggregates
        for name in frame.columns
        if name in (f"@{each}", f"{LAST_VALUE}{each}") or name in also or name.startswith(f"@{each}.")
    ]
    return [name for name in stored if name not in needed and name not in (START, END)]
