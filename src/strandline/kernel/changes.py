"""Few changes to a large slice are kept beside it, and the slice is left as it is until there are many.

    "changes:<n>"    rows of slice n as they are now, each with the place in the slice of the row it stands for, if any

A late element changes one window of very many. To sort and write all of them again for its sake costs more than all
else that a batch does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from strandline.kernel.blocks import END, START, Block, pack, unpack
from strandline.kernel.contents import Frames, identity, items_of
from strandline.kernel.panes import Instant
from strandline.kernel.slices import among, ordered
from strandline.kernel.state import (
    ADDED,
    DUE_CLOCK,
    DUE_WATERMARK,
    HOLD,
    ROW,
    WINDOWS,
    Kept,
    Slice,
    changes_of,
    place_of,
)
from strandline.kernel.strips import shares
from strandline.kernel.windows import expires, max_timestamp
from strandline.model.panes import Emit
from strandline.model.steps import WindowedStep
from strandline.model.windows import Count, Session

LARGE: Final = 2_000
"""So many windows make it worth the trouble."""
SELDOM: Final = 4
"""Changed are fewer than one in so many."""


@dataclass(frozen=True, slots=True)
class Changing:
    """A slice of which a few windows change in this batch."""

    entry: Slice
    slice_size: int
    base: pl.DataFrame
    others: pl.DataFrame | None
    """Changes of before that are not touched now."""
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
        and (rows + entry.changed) * SELDOM < entry.rows
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
        entry, place = slices[number], place_of(number)
        data = held[place]
        base = unpack(data, place).frames[WINDOWS].with_row_index(ROW).cast({ROW: pl.Int64})
        wanted = _wanted(base, frames, keys)
        mine, others = base.filter(among(base, wanted)), None
        if entry.changed:
            before = unpack(held[changes_of(number)], changes_of(number)).frames[WINDOWS]
            again = among(before, wanted)
            others = before.filter(~again)
            old = mine.filter(~pl.col(ROW).is_in(before[ROW].drop_nulls().implode()))
            mine = pl.concat([before.filter(again), old], how="diagonal_relaxed")
        found[number] = Changing(entry, len(data), base, others, mine)
    return found


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


def end(each: Changing, windows: pl.DataFrame, keys: Sequence[str]) -> tuple[bytes, Slice]:
    """The changes of a slice after a batch, with those of before, and its new entry."""
    named = windows if ROW in windows.columns else windows.with_columns(pl.lit(None, pl.Int64).alias(ROW))
    rows = named.drop(DUE_WATERMARK, DUE_CLOCK)
    now = rows if each.others is None else pl.concat([each.others, rows], how="diagonal_relaxed")
    data = pack(Block({WINDOWS: ordered(now, identity(keys))}))
    entry = Slice(
        each.entry.rows + windows.height - each.mine.height,
        each.slice_size + len(data),
        min(each.entry.due_watermark, _least(windows[DUE_WATERMARK])),
        _earlier(each.entry.due_clock, _least(windows[DUE_CLOCK])),
        _hold(each, now),
        now.height,
    )
    return data, entry


def _wanted(rows: pl.DataFrame, frames: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """What comes to the windows of a slice, by what tells these apart: where all begin together, their keys alone."""
    one = all(rows[name].min() == rows[name].max() for name in (START, END))
    names = [*keys] if one else identity(keys)
    return pl.concat([frame.select(names) for frame in frames]).unique()


def _hold(each: Changing, now: pl.DataFrame) -> int | None:
    """The least of all windows; where none held anything before, none but the changed can."""
    least: int | None = _least(now[HOLD])
    if each.entry.hold is None:
        return least
    rest = each.base.filter(~pl.col(ROW).is_in(now[ROW].drop_nulls().implode()))
    return _earlier(_least(rest[HOLD]), least)


def _earlier(one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return min(known) if known else None


def _least(column: pl.Series) -> Any:
    return column.min()
