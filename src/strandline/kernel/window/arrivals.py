"""Sort the elements of a batch into those taken and those late."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from strandline.errors import StateError
from strandline.kernel.aggregation.accumulators import TURN, Combined, concat_unmerged, identity
from strandline.kernel.blocks.block import AT, COUNTED, END, REASON, START, TIME, Block, element_columns
from strandline.kernel.operator import PARTIAL, ROWS, WATERMARK, Instant
from strandline.kernel.state.slice_store import HOLD
from strandline.kernel.window.assign import assign, expires, expiry, has_one, max_timestamp
from strandline.kernel.window.prepare import SURE, gather, surely_taken
from strandline.kernel.window.window_rows import CLOSED, OpenWindows
from strandline.model.panes import LateReason, LateRows, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import may_finish


@dataclass(frozen=True, slots=True)
class Arrived:
    """The elements of a batch: one by one beside each window, combined by window, or combined by shared slice."""

    placed: pl.DataFrame | None = None
    parts: Combined | None = None
    strips: Combined | None = None

    @property
    def surely(self) -> int:
        """Count the elements that were combined before the shuffle, since none of their windows can refuse them."""
        return sum(int(each.rows[COUNTED].sum()) for each in (self.parts, self.strips) if each is not None)


@dataclass(frozen=True, slots=True)
class Judged:
    """Elements that windows take, each beside one of them; late elements; and how many of each."""

    taken: pl.DataFrame | None = None
    late: pl.DataFrame | None = None
    contributed: int = 0
    refused: int = 0


def arrived(blocks: Sequence[Block], ask: WindowedStep, now: Instant) -> Arrived:
    """Collect the elements of all blocks, each beside its windows, and what tasks combined."""
    parts = concat_unmerged(gather(blocks, ask))
    require_open(parts, ask, now)
    return Arrived(placed_rows(row_blocks(blocks), ask, now), parts)


def row_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks with elements one by one."""
    return [block for block in blocks if ROWS in block.frames]


def require_open(parts: Combined | None, ask: WindowedStep, now: Instant) -> None:
    """Raise if elements were combined for a window that has expired: the horizon given to tasks was wrong."""
    first: Any = None if parts is None else parts.rows[END].min()
    if first is not None and expiry(ask, first) <= now.before:
        raise gone_window(now)


def gone_window(now: Instant) -> StateError:
    """Return the error for combined elements of an expired window."""
    return StateError(
        "combined elements reached a window that is already gone",
        detail=f"watermark {now.before}",
        hint="this is a defect in Strandline: the horizon given to prepare lay below the watermark",
    )


def placed_rows(blocks: Sequence[Block], ask: WindowedStep, now: Instant) -> pl.DataFrame | None:
    """Put elements that came one by one beside those of their windows that were not combined before the shuffle."""
    found = []
    for block in blocks:
        placed = assign(block.frames[ROWS].with_columns(pl.lit(now.turn).alias(TURN)), ask.window)
        horizon = block.facts.get("horizon")
        sure = pl.lit(False) if horizon is None else surely_taken(ask, horizon)
        if has_one(ask.window):
            found.append(placed.filter(~sure).with_columns(pl.lit(False).alias(SURE)))
        else:
            also = sure.any().over(element_columns(placed))
            found.append(placed.with_columns(also.alias(SURE)).filter(~sure))
    return pl.concat(found, how="diagonal_relaxed") if found else None


def judge(
    windows: OpenWindows, placed: pl.DataFrame | None, keys: Sequence[str], ask: WindowedStep, now: Instant
) -> Judged:
    """Tell which elements are late: their windows have expired, or their trigger has closed them."""
    if placed is None:
        return Judged()
    closed = pl.lit(False)
    if windows.windows is not None and may_finish(ask.trigger):
        names = identity(keys)
        marks = windows.windows.filter(CLOSED).select(*names, pl.lit(True).alias(CLOSED))
        placed, closed = placed.join(marks, on=names, how="left", nulls_equal=True), pl.col(CLOSED).fill_null(False)
    expired = pl.when(expires(ask) <= now.before).then(pl.lit(LateReason.EXPIRED.value))
    reason = expired.when(closed).then(pl.lit(LateReason.CLOSED.value))
    return split_late(placed.with_columns(reason.alias(REASON)).drop(CLOSED, strict=False), ask, now)


def split_late(judged: pl.DataFrame, ask: WindowedStep, now: Instant) -> Judged:
    """Split elements by REASON. One is late only if all its windows refuse it; the late row names the last of them."""
    taken = pl.col(REASON).is_null()
    if has_one(ask.window):
        accepted, refused = judged.filter(taken), judged.filter(~taken)
        late = _late_rows(refused.with_columns(pl.lit(False).alias(PARTIAL)), now)
        return Judged(accepted.drop(REASON, SURE), late, accepted.height, refused.height)
    element = element_columns(judged)
    known = judged.with_columns((taken.any().over(element) | pl.col(SURE)).alias(PARTIAL))
    refused = known.filter(pl.col(REASON).is_not_null())
    elements = (
        refused.filter(~pl.col(PARTIAL))
        .sort(END, maintain_order=True)
        .unique(element, keep="last", maintain_order=True)
    )
    late = elements if ask.lateness.rows is LateRows.PER_ELEMENT else refused
    contributed = known.filter(taken & ~pl.col(SURE)).select(pl.struct(element).n_unique()).item()
    return Judged(known.filter(taken).drop(REASON, PARTIAL, SURE), _late_rows(late, now), contributed, elements.height)


def _late_rows(refused: pl.DataFrame, now: Instant) -> pl.DataFrame | None:
    """Shape late elements for the late output."""
    if not refused.height:
        return None
    told = refused.with_columns(pl.lit(now.before, pl.Int64).alias(WATERMARK)).drop(SURE, TURN)
    return told.sort(*element_columns(told), START)


def with_hold_times(
    taken: pl.DataFrame | None, windows: OpenWindows, keys: Sequence[str], ask: WindowedStep, now: Instant
) -> pl.DataFrame | None:
    """Add the times by which elements hold the output watermark back; never a time that it has already passed."""
    if taken is None or ask.pane_timestamp is PaneTimestamp.END_OF_WINDOW:
        return taken
    reached = pl.lit(now.before)
    if windows.windows is not None:
        names = identity(keys)
        holds = windows.windows.select(*names, HOLD)
        taken = taken.join(holds, on=names, how="left", nulls_equal=True)
        reached = pl.min_horizontal(reached, pl.col(HOLD) - 1)
    counts = (pl.col(AT) > reached) & (max_timestamp() > now.before)
    return taken.with_columns(pl.when(counts).then(pl.col(AT)).alias(TIME)).drop(HOLD, strict=False)
