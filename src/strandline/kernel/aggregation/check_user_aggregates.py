"""Reject elements that a user-defined aggregate cannot add, before they reach window state."""

from collections.abc import Sequence

import polars as pl

from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.kernel.panics import ANY_FAILURE
from strandline.kernel.stateless_steps import EXCEPTION, PROBLEM
from strandline.model.aggregates import UserAggregate
from strandline.model.steps import WindowedStep


def reject_failing_keys(
    elements: pl.DataFrame, keys: Sequence[str], step: WindowedStep
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Split elements into those that every user-defined aggregate can add, and the others with PROBLEM and EXCEPTION.

    If one element of a key fails, all elements of that key in this batch are rejected.
    """
    user_aggregates = [aggregate for _, aggregate in step.aggregates if isinstance(aggregate, UserAggregate)]
    if not user_aggregates or elements.is_empty():
        return elements, None
    accepted, failed = [], []
    for rows in elements.partition_by(keys, maintain_order=True):
        error = next(filter(None, (_error_of(aggregate, rows) for aggregate in user_aggregates)), None)
        if error is None:
            accepted.append(rows)
        else:
            failed.append(rows.with_columns(pl.lit(error[0]).alias(PROBLEM), pl.lit(error[1]).alias(EXCEPTION)))
    return pl.concat(accepted) if accepted else elements.clear(), pl.concat(failed) if failed else None


def _error_of(aggregate: UserAggregate, rows: pl.DataFrame) -> tuple[str, str] | None:
    """Add the elements of one key in order of arrival; return message and exception name if the aggregate raises."""
    try:
        kept = aggregate.create()
        for value in rows.sort(PARTITION, OFFSET)[aggregate.column]:
            if value is not None:
                kept = aggregate.add(kept, value)
    except ANY_FAILURE as problem:
        return f"{aggregate.name}: {type(problem).__name__}: {problem}", type(problem).__name__
    return None
