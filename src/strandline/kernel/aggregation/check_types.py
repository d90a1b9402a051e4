"""Reject elements that an aggregate cannot take, where a column has another type than its aggregate computes with.

The plan refuses such a pipeline, but it does not know the types of all columns. Columns of the right type cost nothing.
"""

import polars as pl

from strandline.kernel.aggregation import aggregates, retractable_aggregates
from strandline.kernel.aggregation.aggregates import InItems
from strandline.kernel.stateless_steps import run_by_halves
from strandline.model.aggregates import (
    Aggregate,
    AllTrue,
    AnyTrue,
    BitAnd,
    BitOr,
    BitXor,
    Max,
    Mean,
    Min,
    Quantile,
    StdDev,
    StringAgg,
    Sum,
    Variance,
    columns_of,
)
from strandline.model.steps import WindowedStep


def reject_unfit_elements(elements: pl.DataFrame, step: WindowedStep) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Split elements into those that every aggregate can take, and the others with PROBLEM and EXCEPTION."""
    unfit = [
        (name, aggregate)
        for name, aggregate in step.aggregates
        if not all(_fits(aggregate, elements.schema[column]) for column in columns_of(aggregate))
    ]
    if not unfit or elements.is_empty():
        return elements, None
    return run_by_halves(elements, lambda each: _tried(each, unfit, signed=step.signed))


def _fits(aggregate: Aggregate, kind: pl.DataType) -> bool:
    """Tell whether an aggregate computes with values of this type."""
    if kind == pl.Null:
        return True
    match aggregate:
        case Sum() | Mean() | Variance() | StdDev() | Quantile() | AnyTrue() | AllTrue():
            return kind.is_numeric() or kind == pl.Boolean
        case BitAnd() | BitOr() | BitXor():
            return kind.is_integer() or kind == pl.Boolean
        case StringAgg():
            return kind.is_numeric() or kind in (pl.String, pl.Boolean)
        case Min() | Max():
            return not kind.is_nested()
    return True


def _tried(elements: pl.DataFrame, unfit: list[tuple[str, Aggregate]], *, signed: bool) -> pl.DataFrame:
    """Compute the aggregates over all these elements; return the elements if none of the aggregates fails."""
    layout_of = retractable_aggregates.columns_of if signed else aggregates.columns_of
    for name, aggregate in unfit:
        if isinstance(aggregate, Min | Max):  # Polars gives null, or fails only for groups
            raise TypeError(f"{name}: values of type {elements.schema[aggregate.column]} have no order")
        kept = layout_of(name, aggregate)
        if isinstance(kept, InItems):
            elements.select(**kept.items.made).select(kept.value)
        else:
            elements.select(part.partial.alias(part.name) for part in kept.parts)
    return elements
