"""Pre-aggregate elements before the shuffle: assign windows, combine by (key, window), pack one block per key group.

Elements that a window may reject as late must arrive as single rows, since the late output contains each of them. The
watermark before the batch decides, and only the key groups know it exactly. `horizon` is an upper bound of it: a window
that expires after the horizon accepts its elements, so tasks pre-aggregate them. Without a horizon tasks pre-aggregate
nothing.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from strandline.errors import InvalidTime
from strandline.kernel.aggregation.accumulators import Combined, combine, items_of
from strandline.kernel.aggregation.skip_preaggregation import one_row_per_element
from strandline.kernel.blocks.block import AT, END, GAP, OFFSET, PARTITION, REASON, START, Block
from strandline.kernel.blocks.small_frames import only
from strandline.kernel.blocks.sorting import is_worth_it, partition_by_number
from strandline.kernel.operator import ROWS, Prepared
from strandline.kernel.state.partitioning import group_numbers, key_groups
from strandline.kernel.watermarks import FOREVER, NEVER, dead_letter_after
from strandline.kernel.window.assign import assign, expires, has_one, max_timestamp
from strandline.kernel.window.sessions import COVER_END, COVER_START, cover
from strandline.kernel.window.shared_slices import first_end_watermark, step_over_slices, uses_shared_slices
from strandline.model.elements import Duration, TimeDomain, instant
from strandline.model.panes import DeadReason, PaneTimestamp
from strandline.model.steps import WindowedStep, lifts
from strandline.model.triggers import may_finish
from strandline.model.watermarks import Inputs, Watermark
from strandline.model.windows import Custom, GapColumn, Session, Sliding

SURE = "@sure"
PARTS, ITEMS = "parts", "items:"
REPEATS = "repeats"
"""Fact of a block: it may contain several parts of one window."""


def admit(
    elements: pl.DataFrame, step: WindowedStep, rule: Watermark | Inputs | None, clock: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split elements into valid ones, with session gaps and custom bounds parsed, and dead letters with REASON."""
    if step.time is TimeDomain.PROCESSING:
        elements = elements.with_columns(pl.lit(clock, pl.Int64).alias(AT))
    at = pl.col(AT)
    invalid = {DeadReason.NO_EVENT_TIME: at.is_null() | (at == NEVER) | (at == FOREVER)}
    last = dead_letter_after(rule, clock)
    if last is not None:
        invalid[DeadReason.FUTURE] = at > last
    match step.window:
        case Session(GapColumn(name)):
            elements = elements.with_columns(_lengths(elements[name]).alias(GAP))
            invalid[DeadReason.BAD_GAP] = pl.col(GAP).fill_null(0) <= 0
        case Custom(start, end):
            elements = elements.with_columns(_bound(elements, start, START), _bound(elements, end, END))
            outside = [b.is_null() | (b == NEVER) | (b == FOREVER) for b in (pl.col(START), pl.col(END))]
            invalid[DeadReason.BAD_WINDOW] = outside[0] | outside[1] | (pl.col(END) <= pl.col(START))
    if not elements.select(pl.any_horizontal(*invalid.values())).to_series().any():
        return elements, elements.clear().with_columns(pl.lit(None, pl.String).alias(REASON))
    reasons = [pl.when(condition).then(pl.lit(reason.value)) for reason, condition in invalid.items()]
    reason = pl.coalesce(reasons)
    judged = elements.with_columns(reason.alias(REASON))
    return judged.filter(pl.col(REASON).is_null()).drop(REASON), judged.filter(pl.col(REASON).is_not_null())


def _lengths(values: pl.Series) -> pl.Series:
    """Parse session gaps as milliseconds from integers, durations or texts; null where parsing fails."""
    if values.dtype == pl.Duration:
        return values.dt.total_milliseconds()
    if values.dtype != pl.String:
        return (
            values.cast(pl.Int64, strict=False)
            if values.dtype.is_integer()
            else pl.Series([None] * len(values), dtype=pl.Int64)
        )
    return values.replace_strict({text: _length(text) for text in values.unique()}, return_dtype=pl.Int64)


def _length(text: str | None) -> int | None:
    try:
        return None if text is None else Duration.parse(text).ms
    except InvalidTime:
        return None


def _bound(elements: pl.DataFrame, column: str, name: str) -> pl.Series:
    """Parse a window bound as milliseconds from a timestamp, an integer or a text."""
    values = elements[column]
    if values.dtype.is_temporal():
        return (values.cast(pl.Datetime("us")).dt.timestamp("us") // 1000).alias(name)
    if values.dtype == pl.String:
        return values.replace_strict({text: _instant(text) for text in values.unique()}, return_dtype=pl.Int64).alias(
            name
        )
    return values.cast(pl.Int64, strict=False).alias(name)


def _instant(text: str | None) -> int | None:
    try:
        return None if text is None else instant(text).ms
    except InvalidTime:
        return None


def prepare(
    elements: pl.DataFrame, keys: Sequence[str], step: WindowedStep, groups: int, horizon: int | None
) -> Prepared:
    """Pack one block per key group: `parts` are pre-aggregated, `rows` are single elements."""
    if uses_shared_slices(step):
        return Prepared(_blocks(_combine_by_slice(elements, keys, step, horizon), keys, groups, horizon), 0)
    assigned = assign(elements, step.window)
    filtered = 0
    if isinstance(step.window, Sliding) and step.window.leaves_gaps:
        filtered = elements.height - assigned.height
        elements = elements.join(assigned, on=[PARTITION, OFFSET], how="semi")
    if horizon is None or not lifts(step):
        frames = {ROWS: elements}
        return Prepared(_blocks(frames, keys, groups, None), filtered)
    accepted = assigned.select(surely_accepted(step, horizon)).to_series()
    if accepted.all():
        rows = elements.clear()
    elif has_one(step.window):
        rows = elements.filter(~accepted)
    else:
        rows = elements.join(assigned.filter(~accepted), on=[PARTITION, OFFSET], how="semi")
    combined = _combine(assigned, keys, step, None if accepted.all() else accepted)
    return Prepared(_blocks(_frames(rows, combined), keys, groups, horizon, repeats=combined.repeats), filtered)


def _combine_by_slice(
    elements: pl.DataFrame, keys: Sequence[str], step: WindowedStep, horizon: int | None
) -> dict[str, pl.DataFrame]:
    """Pre-aggregate by shared slice the elements whose windows all end after the horizon; keep the others as rows."""
    if horizon is None or not lifts(step):
        return {ROWS: elements}
    not_ended = first_end_watermark(step) > horizon
    combined = combine(assign(elements.filter(not_ended), step_over_slices(step).window), keys, step)
    return _frames(elements.filter(~not_ended), combined)


def _frames(rows: pl.DataFrame, combined: Combined) -> dict[str, pl.DataFrame]:
    return {ROWS: rows, PARTS: combined.rows, **{ITEMS + name: each for name, each in combined.items.items()}}


def _combine(assigned: pl.DataFrame, keys: Sequence[str], step: WindowedStep, accepted: pl.Series | None) -> Combined:
    """Pre-aggregate elements by key and window; merge overlapping sessions of the task first."""
    if not isinstance(step.window, Session):
        return one_row_per_element(assigned, keys, step, accepted) or combine(assigned, keys, step, accepted)
    covered = cover(assigned if accepted is None else assigned.filter(accepted), keys, step.window.touching)
    return combine(covered.drop(START, END).rename({COVER_START: START, COVER_END: END}), keys, step)


def surely_accepted(step: WindowedStep, horizon: int) -> pl.Expr:
    """Tell whether a window accepts an element for every watermark up to the horizon."""
    last = max_timestamp() if may_finish(step.trigger) else expires(step)
    accepted = last > horizon
    if step.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        # An element behind the watermark does not hold it back, so the key group must check each one.
        accepted = accepted & (pl.col(AT) > horizon)
    return accepted


def _blocks(
    frames: Mapping[str, pl.DataFrame], keys: Sequence[str], groups: int, horizon: int | None, *, repeats: bool = False
) -> dict[int, Block]:
    facts = {"horizon": horizon} | ({REPEATS: True} if repeats else {})
    split = {name: _split_by_group(frame, keys, groups) for name, frame in frames.items()}
    found = sorted({group for parts in split.values() for group in parts})
    return {
        group: Block(
            {name: parts[group] for name, parts in split.items() if group in parts},
            facts,
        )
        for group in found
    }


def _split_by_group(frame: pl.DataFrame, keys: Sequence[str], groups: int) -> dict[int, pl.DataFrame]:
    if frame.is_empty():
        return {}
    if is_worth_it(frame.height):
        return partition_by_number(frame, group_numbers(only(frame, keys), groups), groups)
    assigned = frame.with_columns(key_groups(only(frame, keys), groups).alias("@group"))
    split = assigned.partition_by("@group", as_dict=True, include_key=False, maintain_order=True)
    return {int(group): part for (group,), part in split.items()}


def gather(blocks: Sequence[Block], step: WindowedStep) -> list[Combined]:
    """Return the parts that each task pre-aggregated."""
    found = []
    for block in blocks:
        if PARTS in block.frames:
            names = [name for name in items_of(step) if ITEMS + name in block.frames]
            items = {name: block.frames[ITEMS + name] for name in names}
            found.append(Combined(block.frames[PARTS], items, repeats=block.facts.get(REPEATS, False)))
    return found
