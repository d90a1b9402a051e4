"""Admit elements and split them by key group, for operators that do not pre-aggregate."""

from collections.abc import Sequence

import polars as pl

from strandline.kernel.blocks.block import AT, REASON, Block
from strandline.kernel.blocks.small_frames import only
from strandline.kernel.blocks.sorting import is_worth_it, partition_by_number
from strandline.kernel.operator import ROWS, Prepared
from strandline.kernel.state.partitioning import group_numbers
from strandline.kernel.watermarks import FOREVER, NEVER, Rule, dead_letter_after
from strandline.model.panes import DeadReason


def with_valid_time(elements: pl.DataFrame, rule: Rule | None, clock: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split off elements without an event time, or too far in the future if the rule says so, with REASON."""
    at, last = pl.col(AT), dead_letter_after(rule, clock)
    missing = pl.when(at.is_null() | (at == NEVER) | (at == FOREVER)).then(pl.lit(DeadReason.NO_EVENT_TIME.value))
    reason = missing if last is None else missing.when(at > last).then(pl.lit(DeadReason.FUTURE.value))
    judged = elements.with_columns(reason.alias(REASON))
    return judged.filter(pl.col(REASON).is_null()).drop(REASON), judged.filter(pl.col(REASON).is_not_null())


def by_key_group(elements: pl.DataFrame, keys: Sequence[str], groups: int) -> Prepared:
    """Pack elements as one block per key group."""
    numbers = group_numbers(only(elements, keys), groups)
    if is_worth_it(elements.height):
        split = partition_by_number(elements, numbers, groups)
    else:
        placed = elements.with_columns(pl.Series("@group", numbers))
        parts = placed.partition_by("@group", as_dict=True, include_key=False, maintain_order=True)
        split = {int(group): part for (group,), part in parts.items()}
    return Prepared({group: Block({ROWS: split[group]}) for group in sorted(split)}, 0)
