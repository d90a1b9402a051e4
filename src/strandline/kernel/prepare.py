"""Before the shuffle: elements find their windows and are combined, and each key group gets one block.

Elements that a window may refuse must arrive one by one, since the late output tells of each. Which those are depends
on the watermark before the batch, which is only known for sure in the key groups. `horizon` is an upper bound of it:
windows that live beyond it surely take their elements, and those are combined. Without a bound nothing is.
"""

from collections.abc import Sequence

import polars as pl

from strandline.kernel.aggregates import columns_of
from strandline.kernel.blocks import AT, END, NEW, OFFSET, PARTITION, START, Block
from strandline.kernel.slices import key_groups
from strandline.kernel.windows import assign
from strandline.model.steps import WindowedStep
from strandline.model.triggers import finishes_by_watermark_only, may_finish


def prepare(
    elements: pl.DataFrame, keys: Sequence[str], ask: WindowedStep, groups: int, horizon: int | None
) -> dict[int, Block]:
    """For each key group that elements belong to, a block of what it must add: `parts` combined, `rows` one by one."""
    placed = assign(elements, ask.window)
    surely = _surely_taken(ask, horizon)
    parts = _by_group(combine(placed.filter(surely), keys, ask), keys, groups)
    rows = _by_group(placed.filter(~surely), keys, groups)
    frames = {"parts": parts, "rows": rows}
    return {
        group: Block({name: found[group] for name, found in frames.items() if group in found})
        for group in sorted(parts.keys() | rows.keys())
    }


def combine(placed: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    """One row for each key and window, with its elements counted and aggregated."""
    wanted = [part for name, aggregate in ask.aggregates for part in columns_of(name, aggregate).parts]
    # In order of arrival, so that a task that is run again gives the same bytes.
    return placed.group_by(*keys, START, END, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias(NEW), *(part.partial.alias(part.name) for part in wanted)
    )


def expires(ask: WindowedStep) -> pl.Expr:
    """The watermark at which a window is gone, in milliseconds."""
    allowed = ask.lateness.allowed
    return pl.lit(2**63 - 1) if allowed is None else pl.col(END) - 1 + allowed.ms


def _surely_taken(ask: WindowedStep, horizon: int | None) -> pl.Expr:
    if horizon is None or not finishes_by_watermark_only(ask.trigger):
        return pl.lit(False)
    last = pl.col(END) - 1 if may_finish(ask.trigger) else expires(ask)
    return last > horizon


def _by_group(frame: pl.DataFrame, keys: Sequence[str], groups: int) -> dict[int, pl.DataFrame]:
    if frame.is_empty():
        return {}
    placed = frame.with_columns(key_groups(frame.select(keys), groups))
    split = placed.partition_by("group", as_dict=True, include_key=False, maintain_order=True)
    return {int(group): part for (group,), part in split.items()}


def element_columns(keys: Sequence[str]) -> list[str]:
    """The columns every element has, whatever its own are."""
    return [*keys, AT, PARTITION, OFFSET]
