"""Define the aggregates, and whether each one merges partial results and retracts elements.

Nulls are ignored, as in SQL, and with two columns a row in which either is null. Only Count without a column counts
rows, and Collect keeps nulls. Over no values, counts and sums are 0, lists are empty, everything else is null. "First"
and "last" are by event time, then source position. In comparisons NaN is the greatest number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from strandline.errors import InvalidAggregate
from strandline.model.arguments import check_fields, checked


@dataclass(frozen=True, slots=True)
class Count:
    """The number of elements; with a column, the number of elements where it is not null."""

    column: str | None = None
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Sum:
    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Min:
    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Max:
    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Mean:
    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Variance:
    """The sample variance (divisor n - 1), or the population's (divisor n); null where the divisor would be zero."""

    column: str
    population: bool = False
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class StdDev:
    """The square root of Variance."""

    column: str
    population: bool = False
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class First:
    """The value of the earliest element that has one."""

    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Last:
    """The value of the latest element that has one."""

    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class ArgMin:
    """The value of a column where another is least; the earliest element among equals."""

    column: str
    by: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class ArgMax:
    """The value of a column where another is greatest; the earliest element among equals."""

    column: str
    by: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Collect:
    """All values including nulls; a multiset, listed by event time, then source position."""

    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class CountDistinct:
    """The exact number of distinct values; keeps every value with its count, so that it can retract."""

    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ApproxCountDistinct:
    """An estimate of the number of distinct values, from 2^precision one-byte registers (HyperLogLog).

    A precision of 14 takes 16 KiB and has an error near 1 %. A value is hashed as its compact JSON text (UTF-8, members
    sorted by name), by BLAKE2b to eight bytes, read as one big-endian number. Its first `precision` bits choose the
    register; the register keeps the highest position, from 1, of the first one-bit in the rest. The result is the
    classic estimate with linear counting below 2.5 times the number of registers, rounded half up.
    """

    column: str
    precision: int = 14
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 4 <= self.precision <= 18:
            raise InvalidAggregate(f"a precision of {self.precision} is out of range", hint="choose from 4 to 18")


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile within 0.8 %, from counts of values that share sign, exponent and six binary digits.

    It is the value of nearest rank (the smallest that at least q of the values do not exceed), given as the middle of
    its bucket. The bucket of a double is its sign, exponent and first six mantissa bits; zero and the infinities are
    buckets of their own, and NaN is ignored.
    """

    column: str
    q: float
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.q <= 1:
            raise InvalidAggregate(f"{self.q} is not a quantile", hint="give a q from 0 to 1")


@dataclass(frozen=True, slots=True)
class TopK:
    """The k greatest values, greatest first; with `by`, the values where another column is greatest.

    Among equals the earliest element comes first.
    """

    column: str
    k: int
    by: str | None = None
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InvalidAggregate(f"a top {self.k} is empty", hint="ask for one or more")


@dataclass(frozen=True, slots=True)
class AnyTrue:
    """Whether any value is true."""

    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AllTrue:
    """Whether no value is false."""

    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class BitAnd:
    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class BitOr:
    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class BitXor:
    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class StringAgg:
    """Texts joined by a separator, ordered by event time, then source position."""

    column: str
    separator: str = ","
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class UserAggregate:
    """A user-defined aggregate: functions of an accumulator. They must not change the accumulator in place."""

    column: str
    create: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    merge: Callable[[Any, Any], Any] | None = None
    retract: Callable[[Any, Any], Any] | None = None
    name: str = "user"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def merges(self) -> bool:
        return self.merge is not None

    @property
    def retracts(self) -> bool:
        return self.retract is not None


Aggregate = (
    Count
    | Sum
    | Min
    | Max
    | Mean
    | Variance
    | StdDev
    | First
    | Last
    | ArgMin
    | ArgMax
    | Collect
    | CountDistinct
    | ApproxCountDistinct
    | Quantile
    | TopK
    | AnyTrue
    | AllTrue
    | BitAnd
    | BitOr
    | BitXor
    | StringAgg
    | UserAggregate
)


def columns_of(aggregate: Aggregate) -> tuple[str, ...]:
    """Return the columns that an aggregate reads."""
    by = getattr(aggregate, "by", None)
    return tuple(column for column in (aggregate.column, by) if column is not None)


@checked
def count(column: str | None = None) -> Count:
    """Count elements, or the values of a column that are not null."""
    return Count(column)


@checked
def sum(column: str) -> Sum:  # noqa: A001 - the model's own word
    """Sum a column."""
    return Sum(column)


@checked
def min(column: str) -> Min:  # noqa: A001 - the model's own word
    """Return the least value."""
    return Min(column)


@checked
def max(column: str) -> Max:  # noqa: A001 - the model's own word
    """Return the greatest value."""
    return Max(column)


@checked
def mean(column: str) -> Mean:
    """Average a column."""
    return Mean(column)


@checked
def variance(column: str, *, population: bool = False) -> Variance:
    """Return the sample variance, or the population variance."""
    return Variance(column, population)


@checked
def stddev(column: str, *, population: bool = False) -> StdDev:
    """Return the standard deviation."""
    return StdDev(column, population)


@checked
def first(column: str) -> First:
    """Return the earliest value."""
    return First(column)


@checked
def last(column: str) -> Last:
    """Return the latest value."""
    return Last(column)


@checked
def argmin(column: str, *, by: str) -> ArgMin:
    """Return the column's value where `by` is least."""
    return ArgMin(column, by)


@checked
def argmax(column: str, *, by: str) -> ArgMax:
    """Return the column's value where `by` is greatest."""
    return ArgMax(column, by)


@checked
def collect(column: str) -> Collect:
    """Collect all values in a list."""
    return Collect(column)


@checked
def count_distinct(column: str) -> CountDistinct:
    """Count distinct values exactly."""
    return CountDistinct(column)


@checked
def approx_count_distinct(column: str, *, precision: int = 14) -> ApproxCountDistinct:
    """Estimate the number of distinct values."""
    return ApproxCountDistinct(column, precision)


@checked
def quantile(column: str, q: float) -> Quantile:
    """Return a quantile, within 0.8 %."""
    return Quantile(column, q)


@checked
def top_k(column: str, k: int, *, by: str | None = None) -> TopK:
    """Return the k greatest values."""
    return TopK(column, k, by)


@checked
def any_true(column: str) -> AnyTrue:
    """Return whether any value is true."""
    return AnyTrue(column)


@checked
def all_true(column: str) -> AllTrue:
    """Return whether all values are true."""
    return AllTrue(column)


@checked
def bit_and(column: str) -> BitAnd:
    """Combine all values with a bitwise and."""
    return BitAnd(column)


@checked
def bit_or(column: str) -> BitOr:
    """Combine all values with a bitwise or."""
    return BitOr(column)


@checked
def bit_xor(column: str) -> BitXor:
    """Combine all values with a bitwise xor."""
    return BitXor(column)


@checked
def string_agg(column: str, *, separator: str = ",") -> StringAgg:
    """Join all texts."""

    return StringAgg(column, separator)
