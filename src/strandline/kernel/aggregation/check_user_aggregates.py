"""A user's own aggregate is tried on what comes, before it is kept: what it raises on never reaches its windows."""

from collections.abc import Sequence

import polars as pl

from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.kernel.stateless_steps import EXCEPTION, PROBLEM
from strandline.model.aggregates import UserAggregate
from strandline.model.steps import WindowedStep


def probe(elements: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Elements whose keys every aggregate of the user's can add, and those of the others, with PROBLEM."""
    own = [aggregate for _, aggregate in ask.aggregates if isinstance(aggregate, UserAggregate)]
    if not own or elements.is_empty():
        return elements, None
    fine, failed = [], []
    for rows in elements.partition_by(keys, maintain_order=True):
        said = next(filter(None, (_trial(aggregate, rows) for aggregate in own)), None)
        if said is None:
            fine.append(rows)
        else:
            failed.append(rows.with_columns(pl.lit(said[0]).alias(PROBLEM), pl.lit(said[1]).alias(EXCEPTION)))
    return pl.concat(fine) if fine else elements.clear(), pl.concat(failed) if failed else None


def _trial(aggregate: UserAggregate, rows: pl.DataFrame) -> tuple[str, str] | None:
    """What an aggregate says and raises when it cannot add the elements of one key, in order of arrival."""
    try:
        kept = aggregate.create()
        for value in rows.sort(PARTITION, OFFSET)[aggregate.column]:
            if value is not None:
                kept = aggregate.add(kept, value)
    except Exception as problem:  # noqa: BLE001 - a user's code may raise anything
        return f"{aggregate.name}: {type(problem).__name__}: {problem}", type(problem).__name__
    return None
