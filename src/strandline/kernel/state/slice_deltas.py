"""Changes to a large slice are kept beside it, in blocks of their own, and what is there already is left as it is.

    "changes:<n>"      windows of slice n as they are now, and the places of the rows that are therefore gone; the rows
    "changes:<n>:2"…   of the slice and of its changes are counted through

To sort and write all windows again for the sake of some costs more than all else that a batch does. Every batch adds a
block; blocks that have become as large as those before them are put together, so that there are never many and a
window is seldom written again. When too much of a slice is gone it is written whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl

from strandline.kernel.aggregation.accumulators import Frames, identity, items_of
from strandline.kernel.blocks.block import END, START, Block, Packed, opened, pack
from strandline.kernel.state.partitioning import among, ordered
from strandline.kernel.state.slice_rows import GONE, ROW, WINDOWS, Places, alive, changes_of, gone_by, place_of
from strandline.kernel.state.slice_store import ADDED, DUE_CLOCK, DUE_WATERMARK, HOLD, RIDING, Kept, Slice
from strandline.kernel.window.assign import expires, max_timestamp
from strandline.kernel.window.panes import Instant
from strandline.kernel.window.shared_slices import shares
from strandline.model.panes import Emit
from strandline.model.steps import WindowedStep
from strandline.model.windows import Count, Session

LARGE: Final = 2_000
"""So many windows make it worth the trouble."""
SELDOM: Final = 2
"""Touched now or gone before are fewer than one in so many."""
ALIKE: Final = 4
"""So many blocks of changes, none of them so many times as large as the last, become one."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One block of a slice: the first is the slice, others are changes."""

    block: Packed
    """Read as far as it must be."""
    names: pl.DataFrame
    """What tells its windows apart, and what they hold back."""
    size: int
    """Its bytes."""
    gone: Places
    """Places of rows before it that it leaves nothing at."""
    since: int
    """The place of its first row."""

    def among(self, places: Places) -> Places:
        """Those of its rows that are at these places."""
        first, last = np.searchsorted(places, [self.since, self.since + self.names.height])
        return places[first:last] - self.since

    def at(self, rows: Places) -> pl.DataFrame:
        """Some of its rows."""
        return self.block.frame(WINDOWS, rows=rows).drop(ROW, strict=False)


@dataclass(frozen=True, slots=True, eq=False)
class Changing:
    """A slice of which some windows change in this batch."""

    number: int
    entry: Slice
    runs: tuple[Run, ...]
    places: Places
    """Where the windows that are touched stand."""
    others: Places
    """Where the others do."""
    mine: pl.DataFrame
    """The windows that are touched, as they are before this batch."""


def seldom(slices: Mapping[int, Slice], touched: Mapping[int, int], due: set[int], ask: WindowedStep) -> frozenset[int]:
    """Of the slices that so many elements come to, those that are left as they are; not one that is due as a whole."""
    if not _is_plain(ask):
        return frozenset()
    return frozenset(
        number
        for number, rows in touched.items()
        if number not in due
        and (entry := slices.get(number)) is not None
        and entry.rows >= LARGE
        and (rows + entry.gone) * SELDOM < entry.rows
    )


def _is_plain(ask: WindowedStep) -> bool:
    """Whether a window is one row that no other window has a part in."""
    return not (isinstance(ask.window, Session | Count) or shares(ask) or items_of(ask))


def begin(
    held: Mapping[str, bytes],
    slices: Mapping[int, Slice],
    touched: Mapping[int, Sequence[pl.DataFrame]],
    keys: Sequence[str],
) -> dict[int, Changing]:
    """What these slices hold of the windows that something comes to."""
    found = {}
    for number, frames in sorted(touched.items()):
        entry = slices[number]
        runs = _read(held, [place_of(number), *changes_of(number, entry.changes)], keys)
        names = pl.concat([run.names for run in runs], how="vertical_relaxed")
        wanted = among(names, _wanted(names, frames, keys)).to_numpy()
        left = alive(names.height, (run.gone for run in runs))
        places, others = np.flatnonzero(left & wanted), np.flatnonzero(left & ~wanted)
        found[number] = Changing(number, entry, runs, places, others, _at(runs, places))
    return found


def _read(held: Mapping[str, bytes], places: Sequence[str], keys: Sequence[str]) -> tuple[Run, ...]:
    runs: list[Run] = []
    since = 0
    for place in places:
        data = held[place]
        block = opened(data, place)
        names = block.frame(WINDOWS, [*identity(keys), HOLD])
        runs.append(Run(block, names, len(data), gone_by(block) if runs else np.zeros(0, np.int64), since))
        since += names.height
    return tuple(runs)


def _at(runs: Sequence[Run], places: Places) -> pl.DataFrame:
    """The rows of these runs at some places."""
    found = [run.at(mine) for run in runs if len(mine := run.among(places))]
    return pl.concat(found, how="diagonal_relaxed") if found else pl.DataFrame()


def dying(
    number: int,
    frames: Frames,
    touched: Callable[[int], Sequence[pl.DataFrame]],
    keys: Sequence[str],
    ask: WindowedStep,
    now: Instant,
) -> Frames:
    """Of a slice whose windows are all over, those that may still have something to say; of any other slice, all."""
    windows = frames[WINDOWS]
    if ask.final_pane is Emit.ALWAYS or not _is_plain(ask) or windows.height < LARGE:
        return frames
    gone, end = windows.select(expires(ask).max(), max_timestamp().max().alias(END)).row(0)
    if gone > now.after or end > now.before:  # it lives, or has its on-time pane to tell
        return frames
    coming = touched(number)
    comes = among(windows, _wanted(windows, coming, keys)) if coming else pl.lit(False)
    return {WINDOWS: windows.filter((pl.col(ADDED) > 0) | pl.col(HOLD).is_not_null() | comes)}


def with_touched(kept: Kept, changing: Mapping[int, Changing]) -> Kept:
    """What was read of other slices, and of these the windows that something comes to."""
    frames = [each.mine for each in changing.values() if each.mine.height]
    if not frames:
        return kept
    windows = [] if kept.windows is None else [kept.windows]
    return replace(kept, windows=pl.concat([*windows, *frames], how="diagonal_relaxed"))


def end(each: Changing, windows: pl.DataFrame, keys: Sequence[str]) -> tuple[dict[str, bytes | None], Slice]:
    """What is written of a slice after a batch: its windows that were touched, with earlier changes or without; and its
    new entry."""
    left = _left(each, windows.height)
    merged, since = each.runs[left:], sum(run.names.height for run in each.runs[:left])
    rows = [_at(merged, each.others), windows.drop(RIDING)] if merged else [windows.drop(RIDING)]
    gone = np.concatenate([each.places, *(run.gone for run in merged)])
    now = ordered(pl.concat(rows, how="diagonal_relaxed"), identity(keys))
    places = pl.DataFrame({ROW: np.sort(gone[gone < since])})
    data = pack(Block({WINDOWS: now, GONE: places}))
    beside = changes_of(each.number, max(left, each.entry.changes))
    writes: dict[str, bytes | None] = {**dict.fromkeys(beside[left:]), beside[left - 1]: data}
    there = each.entry.rows + windows.height - each.mine.height
    entry = Slice(
        there,
        sum(run.size for run in each.runs[:left]) + len(data),
        min(each.entry.due_watermark, _least(windows[DUE_WATERMARK])),
        _earlier(each.entry.due_clock, _least(windows[DUE_CLOCK])),
        _hold(each, windows),
        since + now.height - there,
        left,
    )
    return writes, entry


def _left(each: Changing, rows: int) -> int:
    """How many blocks are left as they are when so many rows are added: the slice, and changes that are larger."""
    sizes = [len(run.among(each.others)) for run in each.runs]
    left = len(sizes)
    while True:
        alike = left
        while alike > 1 and sizes[alike - 1] < ALIKE * rows:
            alike -= 1
        if left - alike < ALIKE - 1:
            return left
        rows += sum(sizes[alike:left])
        left = alike


def _wanted(rows: pl.DataFrame, frames: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """What comes to the windows of a slice, by what tells these apart: where all begin together, their keys alone."""
    one = all(rows[name].min() == rows[name].max() for name in (START, END))
    names = [*keys] if one else identity(keys)
    return pl.concat([frame.select(names) for frame in frames]).unique()


def _hold(each: Changing, windows: pl.DataFrame) -> int | None:
    """The least of all windows; where none held anything before, none but the touched can."""
    least: int | None = _least(windows[HOLD])
    if each.entry.hold is None:
        return least
    others = [_least(run.names[HOLD].gather(run.among(each.others))) for run in each.runs]
    return _earlier(least, *others)


def _earlier(*each: int | None) -> int | None:
    return min((one for one in each if one is not None), default=None)


def _least(column: pl.Series) -> Any:
    return column.min()
