"""Define the accumulators over signed elements (changelogs): sums use the sign, all others keep a multiset of values.

A retraction removes an element with the same values and event time. If no such element is stored, a discarding window
has emitted it and cleared its state. Sums then emit the difference, which the consumer adds.
"""

from collections.abc import Callable
from typing import Any

import polars as pl

from strandline.errors import Unsupported
from strandline.kernel.aggregation import sketches
from strandline.kernel.aggregation.aggregates import (
    BY,
    MANY,
    POSITION,
    VALUE,
    InItems,
    InRow,
    Items,
    Part,
    empty_result,
    greatest,
    run_user_aggregate,
)
from strandline.kernel.blocks.block import AT, OFFSET, PARTITION, SIGN
from strandline.kernel.expressions import by_row
from strandline.model.aggregates import (
    Aggregate,
    AllTrue,
    AnyTrue,
    ArgMax,
    ArgMin,
    BitAnd,
    BitOr,
    BitXor,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Quantile,
    StdDev,
    StringAgg,
    Sum,
    TopK,
    UserAggregate,
    Variance,
)


def columns_of(name: str, aggregate: Aggregate) -> InRow | InItems:
    """Return the accumulator of an aggregate over signed elements."""
    kept, sign = f"@{name}", pl.col(SIGN)
    match aggregate:
        case Count(None):
            return InRow((Part(kept, sign.sum(), pl.col(kept).sum(), 0, "add"),), pl.col(kept))
        case Count(str() as column):
            return InRow((Part(kept, _many(column), pl.col(kept).sum(), 0, "add"),), pl.col(kept))
        case Sum(column):
            total = ((pl.col(column) + pl.lit(0, pl.Int64)) * sign).sum()
            return InRow((Part(kept, total, pl.col(kept).sum(), 0, "add", column),), pl.col(kept))
        case Mean(column):
            whole, many = f"{kept}.sum", f"{kept}.many"
            parts = (
                Part(whole, (pl.col(column).cast(pl.Float64) * sign).sum(), pl.col(whole).sum(), 0.0, "add"),
                Part(many, _many(column), pl.col(many).sum(), 0, "add"),
            )
            return InRow(parts, pl.when(pl.col(many) != 0).then(pl.col(whole) / by_row(pl.col(many))))
        case _:
            value, empty, finish = _value(aggregate)
            return InItems(_multiset(name, aggregate), value, empty, finish)


def _many(column: str) -> pl.Expr:
    return pl.col(SIGN).filter(pl.col(column).is_not_null()).sum()


def _multiset(name: str, aggregate: Aggregate) -> Items:
    """Keep values with their multiplicity. Positions come from insertions only, never from retractions."""
    added = pl.col(SIGN) > 0
    made = {
        VALUE: pl.col(aggregate.column or ""), AT: pl.col(AT), MANY: pl.col(SIGN),
        PARTITION: pl.when(added).then(pl.col(PARTITION)), OFFSET: pl.when(added).then(pl.col(OFFSET)),
    }  # fmt: skip
    keep = pl.lit(True) if isinstance(aggregate, Collect) else pl.col(VALUE).is_not_null()
    same: tuple[str, ...] = (VALUE, AT)
    by = getattr(aggregate, "by", None) or (aggregate.column if isinstance(aggregate, TopK) else None)
    if by is not None:
        made[BY] = pl.col(by)
        keep, same = keep & pl.col(BY).is_not_null(), (VALUE, BY, AT)
    merge = {MANY: pl.col(MANY).sum(), PARTITION: pl.col(PARTITION).max(), OFFSET: pl.col(OFFSET).max()}
    return Items(name, made, keep, same, merge, signed=True)


def _value(aggregate: Aggregate) -> tuple[pl.Expr, Any, Callable[[Any], Any] | None]:  # noqa: C901, PLR0912 - one line a member
    """Return the value over the remaining values (repeated by multiplicity), the value of none, and the user's code."""
    value = pl.col(VALUE)
    down = [True, False, False, False]
    match aggregate:
        case Min():
            return value.min(), None, None
        case Max():
            return greatest(value), None, None
        case AnyTrue():
            return value.cast(pl.Boolean).max(), None, None
        case AllTrue():
            return value.cast(pl.Boolean).min(), None, None
        case BitAnd():
            return value.bitwise_and(), None, None
        case BitOr():
            return value.bitwise_or(), None, None
        case BitXor():
            return value.bitwise_xor(), None, None
        case Variance(_, population):
            return value.cast(pl.Float64).var(ddof=0 if population else 1), None, None
        case StdDev(_, population):
            return value.cast(pl.Float64).std(ddof=0 if population else 1), None, None
        case CountDistinct():
            return value.n_unique().cast(pl.Int64), 0, None
        case Collect():
            return value.sort_by(*POSITION), [], None
        case StringAgg(_, separator):
            return value.cast(pl.String).sort_by(*POSITION).str.join(separator), None, None
        case First():
            return value.sort_by(*POSITION).first(), None, None
        case Last():
            return value.sort_by(*POSITION, descending=[True] * 3).first(), None, None
        case ArgMin():
            return value.sort_by(BY, *POSITION).first(), None, None
        case ArgMax():
            return value.sort_by(BY, *POSITION, descending=down).first(), None, None
        case TopK(_, k):
            return value.sort_by(BY, *POSITION, descending=down).head(k), [], None
        case Quantile(_, q):
            buckets = sketches.bucket(value).drop_nulls().sort()
            ranks = pl.int_range(1, buckets.len() + 1)
            # The divisor is a column: Polars multiplies by the reciprocal of a scalar one.
            return buckets.filter(ranks / (ranks * 0 + buckets.len()) >= q).first(), None, None
        case UserAggregate():
            return (
                value.sort_by(PARTITION, OFFSET),
                empty_result(aggregate),
                lambda each: run_user_aggregate(aggregate, each),
            )
        case _:
            raise Unsupported(f"{aggregate} cannot process retractions", hint="use count_distinct")
