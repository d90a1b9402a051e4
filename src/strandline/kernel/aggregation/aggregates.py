"""Define the accumulator of each aggregate: how it is built, how it merges, and how its value is computed.

An accumulator is either a few columns in the row of its window (a sum, a list of distinct values), or items: rows of
their own, many to a window (the buckets of a sketch, the elements themselves). Grouping builds both from elements, and
grouping merges them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import polars as pl

from strandline.kernel.aggregation import sketches
from strandline.kernel.aggregation.first_last import Pick
from strandline.kernel.blocks.block import AT, OFFSET, PARTITION
from strandline.kernel.blocks.sorting import Fold
from strandline.kernel.expressions import by_row
from strandline.model.aggregates import (
    Aggregate,
    AllTrue,
    AnyTrue,
    ApproxCountDistinct,
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

VALUE, BY, MANY = "@value", "@by", "@many"
POSITION = (AT, PARTITION, OFFSET)


@dataclass(frozen=True, slots=True)
class Part:
    """Accumulator column: `partial` builds it from elements, `merge` merges it, `empty` is its value for no elements.

    Where `fold` is given, it merges two numbers to one, so columns can be merged row by row.
    """

    name: str
    partial: pl.Expr
    merge: pl.Expr
    empty: Any
    fold: Fold | None = None
    sums: str | None = None
    """The column that it sums, if it is a sum, which may overflow: `overflow.py` then builds, merges and reads it."""
    per_row: pl.Expr | None = None
    """What `partial` gives for a single element, computed row by row; None where no such expression exists."""

    @property
    def nothing(self) -> pl.Expr:
        return pl.lit(self.empty)


@dataclass(frozen=True, slots=True)
class Items:
    """Item rows of each window.

    `made` builds them from elements that pass `keep`. Rows equal in `by` are merged; `most` limits them per window.
    """

    name: str
    made: dict[str, pl.Expr]
    keep: pl.Expr
    by: tuple[str, ...]
    merge: dict[str, pl.Expr] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    descending: tuple[bool, ...] = ()
    most: int | None = None
    signed: bool = False
    """Whether a row has a multiplicity MANY, which is negative for retractions without a matching insertion."""


@dataclass(frozen=True, slots=True)
class InRow:
    """Accumulator kept as columns of the window row."""

    parts: tuple[Part, ...]
    value: pl.Expr
    pick: Pick | None = None
    """Set where the columns are those of one element. The pick finds it, not the expressions of the parts."""
    is_set: bool = False
    """Whether its only column is a list of distinct values."""


@dataclass(frozen=True, slots=True)
class InItems:
    """Accumulator kept as items. `value` is computed over the items of one window; `empty` is used without items."""

    items: Items
    value: pl.Expr
    empty: Any
    finish: Callable[[Any], Any] | None = None
    """User code that turns the value of one window into the final value."""


def columns_of(name: str, aggregate: Aggregate) -> InRow | InItems:
    """Return the accumulator of an aggregate. Its columns or items are named after the aggregate."""
    match aggregate:
        case Count() | Sum() | Min() | Max() | Mean() | AnyTrue() | AllTrue() | BitAnd() | BitOr() | BitXor():
            return _in_row(f"@{name}", aggregate)
        case Variance(column, population):
            return _variance(f"@{name}", column, population, root=False)
        case StdDev(column, population):
            return _variance(f"@{name}", column, population, root=True)
        case CountDistinct(column):
            return _set(f"@{name}", column)
        case First(column):
            return _pick(Pick(name, column))
        case Last(column):
            return _pick(Pick(name, column, last=True))
        case ArgMin(column, by):
            return _pick(Pick(name, column, by))
        case ArgMax(column, by):
            return _pick(Pick(name, column, by, most=True))
        case _:
            return _in_items(name, aggregate)


def _in_row(
    kept: str, aggregate: Count | Sum | Min | Max | Mean | AnyTrue | AllTrue | BitAnd | BitOr | BitXor
) -> InRow:
    column, accumulator = pl.col(aggregate.column or ""), pl.col(kept)
    # A column of nulls only has no type, and bitwise operations need one.
    bits = pl.coalesce(column, pl.lit(None, pl.UInt8))
    not_null = column.is_not_null().cast(pl.Int64)
    match aggregate:
        case Count(None):
            return _single(kept, pl.len().cast(pl.Int64), accumulator.sum(), 0, "add", pl.lit(1, pl.Int64))
        case Count():
            return _single(kept, column.count().cast(pl.Int64), accumulator.sum(), 0, "add", not_null)
        case Sum():
            # Polars sums narrow integers in their own width, which would wrap.
            each = column + pl.lit(0, pl.Int64)
            whole = Part(kept, each.sum(), accumulator.sum(), 0, "add", aggregate.column, each.fill_null(0))
            return InRow((whole,), pl.col(kept))
        case Min():
            return _single(kept, column.min(), accumulator.min(), None, "least", column)
        case Max():
            return _single(kept, greatest(column), greatest(accumulator), None, "greatest", column)
        case Mean():
            total, many, exact = f"{kept}.sum", f"{kept}.many", column.cast(pl.Float64)
            parts = (
                Part(total, exact.sum(), pl.col(total).sum(), 0.0, "add", per_row=exact.fill_null(0.0)),
                Part(many, column.count().cast(pl.Int64), pl.col(many).sum(), 0, "add", per_row=not_null),
            )
            return InRow(parts, pl.when(pl.col(many) > 0).then(pl.col(total) / by_row(pl.col(many))))
        case AnyTrue():
            return _single(kept, column.cast(pl.Boolean).max(), accumulator.max(), None)
        case AllTrue():
            return _single(kept, column.cast(pl.Boolean).min(), accumulator.min(), None)
        case BitAnd():
            return _single(kept, bits.bitwise_and(), accumulator.bitwise_and(), None)
        case BitOr():
            return _single(kept, bits.bitwise_or(), accumulator.bitwise_or(), None)
        case BitXor():
            return _single(kept, bits.bitwise_xor(), accumulator.bitwise_xor(), None)
    assert_never(aggregate)


def _single(
    kept: str, partial: pl.Expr, merge: pl.Expr, empty: Any, fold: Fold | None = None, per_row: pl.Expr | None = None
) -> InRow:
    return InRow((Part(kept, partial, merge, empty, fold, per_row=per_row),), pl.col(kept))


def _set(kept: str, column: str) -> InRow:
    """Keep the distinct values in the order of arrival, so a replayed batch gives the same list."""
    made = pl.col(column).drop_nulls().unique(maintain_order=True)
    merged = pl.col(kept).explode().drop_nulls().unique(maintain_order=True)
    many = pl.col(kept).list.len().fill_null(0).cast(pl.Int64)
    return InRow((Part(kept, made, merged, []),), many, is_set=True)


def _pick(pick: Pick) -> InRow:
    unused = pl.lit(None)
    return InRow(tuple(Part(name, unused, unused, None) for name in pick.columns), pl.col(pick.kept), pick)


def greatest(values: pl.Expr) -> pl.Expr:
    """Return the greatest value by sorting: `sort` puts NaN above every number, `max` does not."""
    return values.sort(nulls_last=False).last()


def _variance(kept: str, column: str, population: bool, *, root: bool) -> InRow:
    """Keep count, mean and the sum of squared distances from the mean, which merge without loss of precision."""
    names = many, mean, squares = f"{kept}.many", f"{kept}.mean", f"{kept}.squares"
    values = pl.col(column).cast(pl.Float64)
    n, m, s = (pl.col(each) for each in names)
    # A part without values has a null mean, which must not turn the merged mean into null.
    centre = pl.when(n.sum() > 0).then((n * m).sum() / n.sum())
    parts = (
        Part(many, values.count().cast(pl.Int64), n.sum(), 0),
        Part(mean, values.mean(), centre, None),
        Part(squares, ((values - values.mean()) ** 2).sum(), s.sum() + (n * (m - centre) ** 2).sum(), 0.0),
    )
    divisor = n if population else n - 1
    value = pl.when(divisor > 0).then(s / by_row(divisor))
    return InRow(parts, value.sqrt() if root else value)


def _in_items(name: str, aggregate: Aggregate) -> InItems:
    match aggregate:
        case Collect(column):
            return InItems(_positioned(name, column, keep=pl.lit(True)), pl.col(VALUE).sort_by(*POSITION), [])
        case StringAgg(column, separator):
            texts = pl.col(VALUE).cast(pl.String).sort_by(*POSITION)
            return InItems(_positioned(name, column), texts.str.join(separator), None)
        case TopK(column, k, by):
            best = _top_items(name, column, k, by or column)
            return InItems(best, pl.col(VALUE).sort_by(BY, *POSITION, descending=[True, False, False, False]), [])
        case Quantile(column, q):
            return _quantile(name, column, q)
        case ApproxCountDistinct(column, precision):
            return _registers(name, column, precision)
        case UserAggregate():
            # The user's accumulator may be any object. State keeps the values instead, which need no user code to read.
            arrived = pl.col(VALUE).sort_by(PARTITION, OFFSET)
            empty = empty_result(aggregate)
            return InItems(
                _positioned(name, aggregate.column), arrived, empty, lambda each: run_user_aggregate(aggregate, each)
            )
    raise TypeError(f"{aggregate} is kept in the window row, not as items")


def _positioned(name: str, column: str, keep: pl.Expr | None = None) -> Items:
    """Keep every value with its position; no rows are merged."""
    made = {VALUE: pl.col(column), **{each: pl.col(each) for each in POSITION}}
    return Items(name, made, pl.col(VALUE).is_not_null() if keep is None else keep, ())


def _top_items(name: str, column: str, most: int, by: str) -> Items:
    """Keep the values with the greatest `by`; of equal ones, the first by position."""
    made = {VALUE: pl.col(column), BY: pl.col(by), **{each: pl.col(each) for each in POSITION}}
    keep = pl.col(VALUE).is_not_null() & pl.col(BY).is_not_null()
    down = (True, False, False, False)
    return Items(name, made, keep, (), order=(BY, *POSITION), descending=down, most=most)


def _quantile(name: str, column: str, q: float) -> InItems:
    """Count values by bucket. The quantile is the first bucket whose cumulative share reaches q."""
    made = {VALUE: sketches.bucket(pl.col(column)), MANY: pl.lit(1, pl.Int64)}
    counts = Items(name, made, pl.col(VALUE).is_not_null(), (VALUE,), {MANY: pl.col(MANY).sum()})
    passed = pl.col(MANY).sort_by(VALUE).cum_sum() / by_row(pl.col(MANY).sum())
    return InItems(counts, pl.col(VALUE).sort().filter(passed >= q).first(), None)


def _registers(name: str, column: str, precision: int) -> InItems:
    """Keep the highest position of each HyperLogLog register."""
    seen = sketches.register(pl.col(column), precision)
    made = {VALUE: seen.struct.field("register"), MANY: seen.struct.field("position")}
    kept = Items(name, made, pl.col(VALUE).is_not_null(), (VALUE,), {MANY: pl.col(MANY).max()})
    return InItems(kept, sketches.estimate(pl.col(MANY), precision), 0)


def empty_result(aggregate: UserAggregate) -> Any:
    """Return the result of a user-defined aggregate over no elements; None if its code raises."""
    try:
        return aggregate.result(aggregate.create())
    except Exception:  # noqa: BLE001 - a user's code may raise anything
        return None


def run_user_aggregate(aggregate: UserAggregate, values: Sequence[Any]) -> Any:
    """Run a user-defined aggregate over all values of a window, in order of arrival."""
    kept = aggregate.create()
    for value in values:
        kept = aggregate.add(kept, value)
    return aggregate.result(kept)
