"""Collect the elements of a batch, assign their windows, and split off late elements."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from strandline.errors import StateError
from strandline.kernel.aggregation.accumulators import TURN, Combined, concat_unmerged, identity
from strandline.kernel.blocks.block import AT, COUNTED, END, REASON, START, TIME, Block, element_columns
from strandline.kernel.operator import PARTIAL, ROWS, WATERMARK, BatchTimes
from strandline.kernel.state.slice_store import HOLD
from strandline.kernel.window.assign import assign, expires, expiry, has_one, max_timestamp
from strandline.kernel.window.prepare import SURE, gather, surely_accepted
from strandline.kernel.window.window_rows import CLOSED, OpenWindows
from strandline.model.panes import LateReason, LateRows, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import may_finish


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The elements of a batch: rows with a window each, or pre-aggregated by window or by shared slice."""

    assigned: pl.DataFrame | None = None
    parts: Combined | None = None
    shared_parts: Combined | None = None

    @property
    def combined_count(self) -> int:
        """Count the elements that were pre-aggregated before the shuffle; no window can reject them as late."""
        return sum(int(each.rows[COUNTED].sum()) for each in (self.parts, self.shared_parts) if each is not None)


@dataclass(frozen=True, slots=True)
class LateSplit:
    """Accepted elements, one row per element and window; late elements; and the counts of both."""

    accepted: pl.DataFrame | None = None
    late: pl.DataFrame | None = None
    contributed: int = 0
    refused: int = 0


def collect_arrivals(blocks: Sequence[Block], step: WindowedStep, now: BatchTimes) -> Arrivals:
    """Collect the single rows of all blocks with their windows, and the parts that tasks pre-aggregated."""
    parts = concat_unmerged(gather(blocks, step))
    require_open(parts, step, now)
    return Arrivals(assign_rows(row_blocks(blocks), step, now), parts)


def row_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks that contain single elements."""
    return [block for block in blocks if ROWS in block.frames]


def require_open(parts: Combined | None, step: WindowedStep, now: BatchTimes) -> None:
    """Raise if tasks pre-aggregated elements of an expired window: their horizon was wrong."""
    first: Any = None if parts is None else parts.rows[END].min()
    if first is not None and expiry(step, first) <= now.before:
        raise expired_window_error(now)


def expired_window_error(now: BatchTimes) -> StateError:
    """Return the error for pre-aggregated elements of an expired window."""
    return StateError(
        "pre-aggregated elements reached a window that is already gone",
        detail=f"watermark {now.before}",
        hint="this is a defect in Strandline: the horizon given to prepare lay below the watermark",
    )


def assign_rows(blocks: Sequence[Block], step: WindowedStep, now: BatchTimes) -> pl.DataFrame | None:
    """Assign windows to single elements; leave out the windows for which a task pre-aggregated the element."""
    frames = []
    for block in blocks:
        assigned = assign(block.frames[ROWS].with_columns(pl.lit(now.batch_number).alias(TURN)), step.window)
        horizon = block.facts.get("horizon")
        sure = pl.lit(False) if horizon is None else surely_accepted(step, horizon)
        if has_one(step.window):
            frames.append(assigned.filter(~sure).with_columns(pl.lit(False).alias(SURE)))
        else:
            also = sure.any().over(element_columns(assigned))
            frames.append(assigned.with_columns(also.alias(SURE)).filter(~sure))
    return pl.concat(frames, how="diagonal_relaxed") if frames else None


def split_by_lateness(
    windows: OpenWindows, assigned: pl.DataFrame | None, keys: Sequence[str], step: WindowedStep, now: BatchTimes
) -> LateSplit:
    """Split off late elements: their windows have expired, or the trigger has closed them."""
    if assigned is None:
        return LateSplit()
    closed = pl.lit(False)
    if windows.windows is not None and may_finish(step.trigger):
        names = identity(keys)
        marks = windows.windows.filter(CLOSED).select(*names, pl.lit(True).alias(CLOSED))
        assigned, closed = assigned.join(marks, on=names, how="left", nulls_equal=True), pl.col(CLOSED).fill_null(False)
    expired = pl.when(expires(step) <= now.before).then(pl.lit(LateReason.EXPIRED.value))
    reason = expired.when(closed).then(pl.lit(LateReason.CLOSED.value))
    return split_by_reason(assigned.with_columns(reason.alias(REASON)).drop(CLOSED, strict=False), step, now)


def split_by_reason(marked: pl.DataFrame, step: WindowedStep, now: BatchTimes) -> LateSplit:
    """Split elements by REASON.

    An element is late only if all its windows reject it; the late row names the last of these windows.
    """
    accepted = pl.col(REASON).is_null()
    if has_one(step.window):
        on_time, refused = marked.filter(accepted), marked.filter(~accepted)
        late = _late_rows(refused.with_columns(pl.lit(False).alias(PARTIAL)), now)
        return LateSplit(on_time.drop(REASON, SURE), late, on_time.height, refused.height)
    element = element_columns(marked)
    known = marked.with_columns((accepted.any().over(element) | pl.col(SURE)).alias(PARTIAL))
    refused = known.filter(pl.col(REASON).is_not_null())
    elements = (
        refused.filter(~pl.col(PARTIAL))
        .sort(END, maintain_order=True)
        .unique(element, keep="last", maintain_order=True)
    )
    late = elements if step.lateness.rows is LateRows.PER_ELEMENT else refused
    contributed = known.filter(accepted & ~pl.col(SURE)).select(pl.struct(element).n_unique()).item()
    return LateSplit(
        known.filter(accepted).drop(REASON, PARTIAL, SURE), _late_rows(late, now), contributed, elements.height
    )


def _late_rows(refused: pl.DataFrame, now: BatchTimes) -> pl.DataFrame | None:
    """Shape late elements for the late output."""
    if not refused.height:
        return None
    rows = refused.with_columns(pl.lit(now.before, pl.Int64).alias(WATERMARK)).drop(SURE, TURN)
    return rows.sort(*element_columns(rows), START)


def with_hold_times(
    accepted: pl.DataFrame | None, windows: OpenWindows, keys: Sequence[str], step: WindowedStep, now: BatchTimes
) -> pl.DataFrame | None:
    """Add the time at which each element holds the output watermark back, unless the watermark has passed it."""
    if accepted is None or step.pane_timestamp is PaneTimestamp.END_OF_WINDOW:
        return accepted
    reached = pl.lit(now.before)
    if windows.windows is not None:
        names = identity(keys)
        holds = windows.windows.select(*names, HOLD)
        accepted = accepted.join(holds, on=names, how="left", nulls_equal=True)
        reached = pl.min_horizontal(reached, pl.col(HOLD) - 1)
    counts = (pl.col(AT) > reached) & (max_timestamp() > now.before)
    return accepted.with_columns(pl.when(counts).then(pl.col(AT)).alias(TIME)).drop(HOLD, strict=False)
