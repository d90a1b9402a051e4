"""Before the shuffle: elements find their windows and are combined, and each key group gets one block.

Elements that a window may refuse must arrive one by one, since the late output tells of each. Which those are depends
on the watermark before the batch, which is only known for sure in the key groups. `horizon` is an upper bound of it:
windows that live beyond it surely take their elements, and those are combined. Without a bound nothing is.
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
from strandline.kernel.window.shared_slices import first_over, shares, striped
from strandline.model.elements import Duration, TimeDomain, instant
from strandline.model.panes import DeadReason, PaneTimestamp
from strandline.model.steps import WindowedStep, lifts
from strandline.model.triggers import may_finish
from strandline.model.watermarks import Inputs, Watermark
from strandline.model.windows import Custom, GapColumn, Session, Sliding

SURE = "@sure"
PARTS, ITEMS = "parts", "items:"
REPEATS = "repeats"
"""The fact that a window may have several parts."""


def admit(
    elements: pl.DataFrame, ask: WindowedStep, rule: Watermark | Inputs | None, clock: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The elements that can be taken in, with their windows' own columns read; and those that cannot, with REASON."""
    if ask.time is TimeDomain.PROCESSING:
        elements = elements.with_columns(pl.lit(clock, pl.Int64).alias(AT))
    at = pl.col(AT)
    wrong = {DeadReason.NO_EVENT_TIME: at.is_null() | (at == NEVER) | (at == FOREVER)}
    last = dead_letter_after(rule, clock)
    if last is not None:
        wrong[DeadReason.FUTURE] = at > last
    match ask.window:
        case Session(GapColumn(name)):
            elements = elements.with_columns(_lengths(elements[name]).alias(GAP))
            wrong[DeadReason.BAD_GAP] = pl.col(GAP).fill_null(0) <= 0
        case Custom(start, end):
            elements = elements.with_columns(_bound(elements, start, START), _bound(elements, end, END))
            outside = [b.is_null() | (b == NEVER) | (b == FOREVER) for b in (pl.col(START), pl.col(END))]
            wrong[DeadReason.BAD_WINDOW] = outside[0] | outside[1] | (pl.col(END) <= pl.col(START))
    if not elements.select(pl.any_horizontal(*wrong.values())).to_series().any():
        return elements, elements.clear().with_columns(pl.lit(None, pl.String).alias(REASON))
    told = [pl.when(condition).then(pl.lit(reason.value)) for reason, condition in wrong.items()]
    reason = pl.coalesce(told)
    judged = elements.with_columns(reason.alias(REASON))
    return judged.filter(pl.col(REASON).is_null()).drop(REASON), judged.filter(pl.col(REASON).is_not_null())


def _lengths(values: pl.Series) -> pl.Series:
    """Gaps in milliseconds: whole numbers are, durations and texts are lengths of time; null where it is none."""
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
    """A bound in milliseconds, from a time, a whole number of them, or a text that says one."""
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
    elements: pl.DataFrame, keys: Sequence[str], ask: WindowedStep, groups: int, horizon: int | None
) -> Prepared:
    """For each key group that elements belong to, a block of what it must add: `parts` combined, `rows` one by one."""
    if shares(ask):
        return Prepared(_blocks(_in_strips(elements, keys, ask, horizon), keys, groups, horizon), 0)
    placed = assign(elements, ask.window)
    filtered = 0
    if isinstance(ask.window, Sliding) and ask.window.leaves_gaps:
        filtered = elements.height - placed.height
        elements = elements.join(placed, on=[PARTITION, OFFSET], how="semi")
    if horizon is None or not lifts(ask):
        frames = {ROWS: elements}
        return Prepared(_blocks(frames, keys, groups, None), filtered)
    sure = placed.select(surely_taken(ask, horizon)).to_series()
    if sure.all():
        rows = elements.clear()
    elif has_one(ask.window):
        rows = elements.filter(~sure)
    else:
        rows = elements.join(placed.filter(~sure), on=[PARTITION, OFFSET], how="semi")
    combined = _combine(placed, keys, ask, None if sure.all() else sure)
    return Prepared(_blocks(_frames(rows, combined), keys, groups, horizon, repeats=combined.repeats), filtered)


def _in_strips(
    elements: pl.DataFrame, keys: Sequence[str], ask: WindowedStep, horizon: int | None
) -> dict[str, pl.DataFrame]:
    """Elements whose windows are all still to end are combined by what these share; the others are looked at."""
    if horizon is None or not lifts(ask):
        return {ROWS: elements}
    ahead = first_over(ask) > horizon
    combined = combine(assign(elements.filter(ahead), striped(ask).window), keys, ask)
    return _frames(elements.filter(~ahead), combined)


def _frames(rows: pl.DataFrame, combined: Combined) -> dict[str, pl.DataFrame]:
    return {ROWS: rows, PARTS: combined.rows, **{ITEMS + name: each for name, each in combined.items.items()}}


def _combine(placed: pl.DataFrame, keys: Sequence[str], ask: WindowedStep, sure: pl.Series | None) -> Combined:
    """Sessions of one batch are put together as far as they meet; other windows are what they are."""
    if not isinstance(ask.window, Session):
        return one_row_per_element(placed, keys, ask, sure) or combine(placed, keys, ask, sure)
    covered = cover(placed if sure is None else placed.filter(sure), keys, ask.window.touching)
    return combine(covered.drop(START, END).rename({COVER_START: START, COVER_END: END}), keys, ask)


def surely_taken(ask: WindowedStep, horizon: int) -> pl.Expr:
    """Whether a window takes an element whatever the watermark before the batch is, up to the horizon."""
    last = max_timestamp() if may_finish(ask.trigger) else expires(ask)
    sure = last > horizon
    if ask.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        # What is behind does not hold time back, so each such element must be looked at.
        sure = sure & (pl.col(AT) > horizon)
    return sure


def _blocks(
    frames: Mapping[str, pl.DataFrame], keys: Sequence[str], groups: int, horizon: int | None, *, repeats: bool = False
) -> dict[int, Block]:
    facts = {"horizon": horizon} | ({REPEATS: True} if repeats else {})
    split = {name: _by_group(frame, keys, groups) for name, frame in frames.items()}
    found = sorted({group for parts in split.values() for group in parts})
    return {
        group: Block(
            {name: parts[group] for name, parts in split.items() if group in parts},
            facts,
        )
        for group in found
    }


def _by_group(frame: pl.DataFrame, keys: Sequence[str], groups: int) -> dict[int, pl.DataFrame]:
    if frame.is_empty():
        return {}
    if is_worth_it(frame.height):
        return partition_by_number(frame, group_numbers(only(frame, keys), groups), groups)
    placed = frame.with_columns(key_groups(only(frame, keys), groups).alias("@group"))
    split = placed.partition_by("@group", as_dict=True, include_key=False, maintain_order=True)
    return {int(group): part for (group,), part in split.items()}


def gather(blocks: Sequence[Block], ask: WindowedStep) -> list[Combined]:
    """What each task combined."""
    found = []
    for block in blocks:
        if PARTS in block.frames:
            names = [name for name in items_of(ask) if ITEMS + name in block.frames]
            items = {name: block.frames[ITEMS + name] for name in names}
            found.append(Combined(block.frames[PARTS], items, repeats=block.facts.get(REPEATS, False)))
    return found
