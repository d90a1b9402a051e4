"""Aggregates in columns: what is kept of a window's elements, how parts of it merge, and the value told in a pane.

An aggregate keeps either a few columns in the row of its window (a sum, a list of the different values that were seen),
or items: rows of their own, many to a window (the buckets of a sketch, the elements themselves). Both are made from
elements by grouping, and merged by grouping again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import polars as pl

from strandline.kernel.aggregation import overflow, sketches
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
    """One kept column: made from elements by `partial`, joined by `merge`, `empty` when nothing was added.

    Where `fold` is given, two of its numbers also become one by it, so that columns of them can be joined row by row.
    """

    name: str
    partial: pl.Expr
    merge: pl.Expr
    empty: Any
    fold: Fold | None = None
    sums: str | None = None
    """The column that it sums, where sums may leave the range of integers."""
    alone: pl.Expr | None = None
    """What `partial` makes of one element, row by row, where that can be said."""

    @property
    def nothing(self) -> pl.Expr:
        return pl.lit(self.empty)


@dataclass(frozen=True, slots=True)
class Items:
    """Rows kept for each window: made from elements, grouped by what makes two of them one, cut to the first few."""

    name: str
    made: dict[str, pl.Expr]
    keep: pl.Expr
    by: tuple[str, ...]
    merge: dict[str, pl.Expr] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    descending: tuple[bool, ...] = ()
    most: int | None = None
    signed: bool = False
    """Whether each stands for MANY equal ones, none, or some that were taken back without having been there."""


@dataclass(frozen=True, slots=True)
class InRow:
    """An aggregate kept in the row of its window."""

    parts: tuple[Part, ...]
    value: pl.Expr
    pick: Pick | None = None
    """Where its columns are those of one element; how it is found is said there, and not in the parts."""
    is_set: bool = False
    """Whether its only column is a list of different values."""


@dataclass(frozen=True, slots=True)
class InItems:
    """An aggregate kept as items; `value` is computed over those of one window, `empty` told where there are none."""

    items: Items
    value: pl.Expr
    empty: Any
    told: Callable[[Any], Any] | None = None
    """What a user's own code makes of the value, one window at a time."""


def columns_of(name: str, aggregate: Aggregate) -> InRow | InItems:
    """How an aggregate is kept; its columns or items are called after the value it serves."""
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
            return _picked(Pick(name, column))
        case Last(column):
            return _picked(Pick(name, column, last=True))
        case ArgMin(column, by):
            return _picked(Pick(name, column, by))
        case ArgMax(column, by):
            return _picked(Pick(name, column, by, most=True))
        case _:
            return _in_items(name, aggregate)


def _in_row(
    kept: str, aggregate: Count | Sum | Min | Max | Mean | AnyTrue | AllTrue | BitAnd | BitOr | BitXor
) -> InRow:
    column, mine = pl.col(aggregate.column or ""), pl.col(kept)
    # A column in which nothing was ever given has no type, and what has no type has no bits.
    bits = pl.coalesce(column, pl.lit(None, pl.UInt8))
    there = column.is_not_null().cast(pl.Int64)
    match aggregate:
        case Count(None):
            return _single(kept, pl.len().cast(pl.Int64), mine.sum(), 0, "add", pl.lit(1, pl.Int64))
        case Count():
            return _single(kept, column.count().cast(pl.Int64), mine.sum(), 0, "add", there)
        case Sum():
            # A column of narrow integers would be summed in its own width, and wrap.
            each = column + pl.lit(0, pl.Int64)
            whole = Part(kept, each.sum(), mine.sum(), 0, "add", aggregate.column, each.fill_null(0))
            return InRow((whole,), overflow.told(kept))
        case Min():
            return _single(kept, column.min(), mine.min(), None, "least", column)
        case Max():
            return _single(kept, greatest(column), greatest(mine), None, "greatest", column)
        case Mean():
            total, many, exact = f"{kept}.sum", f"{kept}.many", column.cast(pl.Float64)
            parts = (
                Part(total, exact.sum(), pl.col(total).sum(), 0.0, "add", alone=exact.fill_null(0.0)),
                Part(many, column.count().cast(pl.Int64), pl.col(many).sum(), 0, "add", alone=there),
            )
            return InRow(parts, pl.when(pl.col(many) > 0).then(pl.col(total) / by_row(pl.col(many))))
        case AnyTrue():
            return _single(kept, column.cast(pl.Boolean).max(), mine.max(), None)
        case AllTrue():
            return _single(kept, column.cast(pl.Boolean).min(), mine.min(), None)
        case BitAnd():
            return _single(kept, bits.bitwise_and(), mine.bitwise_and(), None)
        case BitOr():
            return _single(kept, bits.bitwise_or(), mine.bitwise_or(), None)
        case BitXor():
            return _single(kept, bits.bitwise_xor(), mine.bitwise_xor(), None)
    assert_never(aggregate)


def _single(
    kept: str, partial: pl.Expr, merge: pl.Expr, empty: Any, fold: Fold | None = None, alone: pl.Expr | None = None
) -> InRow:
    return InRow((Part(kept, partial, merge, empty, fold, alone=alone),), pl.col(kept))


def _set(kept: str, column: str) -> InRow:
    """The different values, in the order they came in, so that they are the same whenever a batch is played."""
    made = pl.col(column).drop_nulls().unique(maintain_order=True)
    merged = pl.col(kept).explode().drop_nulls().unique(maintain_order=True)
    many = pl.col(kept).list.len().fill_null(0).cast(pl.Int64)
    return InRow((Part(kept, made, merged, []),), many, is_set=True)


def _picked(pick: Pick) -> InRow:
    nobody = pl.lit(None)
    return InRow(tuple(Part(name, nobody, nobody, None) for name in pick.columns), pl.col(pick.kept), pick)


def greatest(values: pl.Expr) -> pl.Expr:
    """NaN is the greatest number, and sorting is what knows it."""
    return values.sort(nulls_last=False).last()


def _variance(kept: str, column: str, population: bool, *, root: bool) -> InRow:
    """How many, their mean, and the sum of squared distances from it: parts merge without losing digits."""
    names = many, mean, squares = f"{kept}.many", f"{kept}.mean", f"{kept}.squares"
    values = pl.col(column).cast(pl.Float64)
    n, m, s = (pl.col(each) for each in names)
    # A part without values has no mean; it must not spoil those that have one.
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
            best = _highest_few(name, column, k, by or column)
            return InItems(best, pl.col(VALUE).sort_by(BY, *POSITION, descending=[True, False, False, False]), [])
        case Quantile(column, q):
            return _quantile(name, column, q)
        case ApproxCountDistinct(column, precision):
            return _registers(name, column, precision)
        case UserAggregate():
            # Its accumulators may be anything, and nothing is kept that only its own code could read.
            arrived = pl.col(VALUE).sort_by(PARTITION, OFFSET)
            empty = of_nothing(aggregate)
            return InItems(_positioned(name, aggregate.column), arrived, empty, lambda each: folded(aggregate, each))
    raise TypeError(f"{aggregate} is kept in its row")


def _positioned(name: str, column: str, keep: pl.Expr | None = None) -> Items:
    """Every value with its position: nothing is merged."""
    made = {VALUE: pl.col(column), **{each: pl.col(each) for each in POSITION}}
    return Items(name, made, pl.col(VALUE).is_not_null() if keep is None else keep, ())


def _highest_few(name: str, column: str, most: int, by: str) -> Items:
    """The values with the most of another column; of equals, those that come first by position."""
    made = {VALUE: pl.col(column), BY: pl.col(by), **{each: pl.col(each) for each in POSITION}}
    keep = pl.col(VALUE).is_not_null() & pl.col(BY).is_not_null()
    down = (True, False, False, False)
    return Items(name, made, keep, (), order=(BY, *POSITION), descending=down, most=most)


def _quantile(name: str, column: str, q: float) -> InItems:
    """Counts by bucket; the first bucket that with those before it holds the share q."""
    made = {VALUE: sketches.bucket(pl.col(column)), MANY: pl.lit(1, pl.Int64)}
    counts = Items(name, made, pl.col(VALUE).is_not_null(), (VALUE,), {MANY: pl.col(MANY).sum()})
    passed = pl.col(MANY).sort_by(VALUE).cum_sum() / by_row(pl.col(MANY).sum())
    return InItems(counts, pl.col(VALUE).sort().filter(passed >= q).first(), None)


def _registers(name: str, column: str, precision: int) -> InItems:
    """The highest position that each register has seen."""
    seen = sketches.register(pl.col(column), precision)
    made = {VALUE: seen.struct.field("register"), MANY: seen.struct.field("position")}
    kept = Items(name, made, pl.col(VALUE).is_not_null(), (VALUE,), {MANY: pl.col(MANY).max()})
    return InItems(kept, sketches.estimate(pl.col(MANY), precision), 0)


def of_nothing(aggregate: UserAggregate) -> Any:
    """What a user's own aggregate tells when nothing was added; null if it cannot."""
    try:
        return aggregate.result(aggregate.create())
    except Exception:  # noqa: BLE001 - a user's code may raise anything
        return None


def folded(aggregate: UserAggregate, values: Sequence[Any]) -> Any:
    """A user's own aggregate, row by row, over all values of a window in order of arrival."""
    kept = aggregate.create()
    for value in values:
        kept = aggregate.add(kept, value)
    return aggregate.result(kept)
