"""What is computed: the aggregates, each saying whether its parts merge and whether an element can be taken back.

Nulls are left out, as in SQL, and with two columns a row where either is null; only Count without a column counts rows,
and Collect keeps nulls. Over no values counts and sums are 0, lists are empty, everything else is null. "First" and
"last" go by event time, then source position; where values are compared, NaN is the greatest number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from strandline.errors import InvalidAggregate


@dataclass(frozen=True, slots=True)
class Count:
    """How many elements; with a column, how many where it is not null."""

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
    """A column where another is least; the earliest element decides between equals."""

    column: str
    by: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class ArgMax:
    """A column where another is greatest; the earliest element decides between equals."""

    column: str
    by: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Collect:
    """All values, nulls too; as a multiset, though listed by event time, then source position."""

    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class CountDistinct:
    """How many different values, exactly; keeps every value with its count, so that one can be taken back."""

    column: str
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ApproxCountDistinct:
    """About how many different values, from 2^precision one-byte registers (HyperLogLog; 14: 16 KiB, error near 1 %).

    A value is hashed as its compact JSON text (UTF-8, members sorted by name), by BLAKE2b to eight bytes, read as one
    big-endian number. Its first `precision` bits choose the register; the register keeps the highest position, from 1,
    of the first one-bit in the rest. The answer is the classic estimate with linear counting below 2.5 registers'
    worth, rounded half up.
    """

    column: str
    precision: int = 14
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 4 <= self.precision <= 18:
            raise InvalidAggregate(f"a precision of {self.precision} is out of reach", hint="choose from 4 to 18")


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile within 0.8 %, from counts of values that share sign, exponent and six binary digits.

    It is the value of nearest rank, the smallest that at least q of the values do not exceed, told as the middle of its
    bucket. The bucket of a double is its sign, exponent and first six mantissa bits; zero and the infinities are their
    own buckets, and NaN is left out.
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

    The earliest element comes first among equals.
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
    """Whether some value is true."""

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
    """Texts joined by a separator, by event time, then source position."""

    column: str
    separator: str = ","
    merges: ClassVar[bool] = True
    retracts: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class UserAggregate:
    """A user's own: an accumulator, made, added to, merged, taken back from, and read. It must not change in place."""

    column: str
    create: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    merge: Callable[[Any, Any], Any] | None = None
    retract: Callable[[Any, Any], Any] | None = None
    name: str = "user"

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
    """The columns that an aggregate reads."""
    by = getattr(aggregate, "by", None)
    return tuple(column for column in (aggregate.column, by) if column is not None)


def count(column: str | None = None) -> Count:
    """How many elements, or how many values of a column that are not null."""
    return Count(column)


def sum(column: str) -> Sum:  # noqa: A001 - the model's own word
    """The total of a column."""
    return Sum(column)


def min(column: str) -> Min:  # noqa: A001 - the model's own word
    """The least value."""
    return Min(column)


def max(column: str) -> Max:  # noqa: A001 - the model's own word
    """The greatest value."""
    return Max(column)


def mean(column: str) -> Mean:
    """The average."""
    return Mean(column)


def variance(column: str, *, population: bool = False) -> Variance:
    """The sample variance, or the population's."""
    return Variance(column, population)


def stddev(column: str, *, population: bool = False) -> StdDev:
    """The standard deviation."""
    return StdDev(column, population)


def first(column: str) -> First:
    """The earliest value."""
    return First(column)


def last(column: str) -> Last:
    """The latest value."""
    return Last(column)


def argmin(column: str, *, by: str) -> ArgMin:
    """The column's value where `by` is least."""
    return ArgMin(column, by)


def argmax(column: str, *, by: str) -> ArgMax:
    """The column's value where `by` is greatest."""
    return ArgMax(column, by)


def collect(column: str) -> Collect:
    """All values, as a list."""
    return Collect(column)


def count_distinct(column: str) -> CountDistinct:
    """How many different values, exactly."""
    return CountDistinct(column)


def approx_count_distinct(column: str, *, precision: int = 14) -> ApproxCountDistinct:
    """About how many different values."""
    return ApproxCountDistinct(column, precision)


def quantile(column: str, q: float) -> Quantile:
    """A quantile, within 0.8 %."""
    return Quantile(column, q)


def top_k(column: str, k: int, *, by: str | None = None) -> TopK:
    """The k greatest values."""
    return TopK(column, k, by)


def any_true(column: str) -> AnyTrue:
    """Whether some value is true."""
    return AnyTrue(column)


def all_true(column: str) -> AllTrue:
    """Whether all values are true."""
    return AllTrue(column)


def bit_and(column: str) -> BitAnd:
    """All values, and-ed bit by bit."""
    return BitAnd(column)


def bit_or(column: str) -> BitOr:
    """All values, or-ed bit by bit."""
    return BitOr(column)


def bit_xor(column: str) -> BitXor:
    """All values, xor-ed bit by bit."""
    return BitXor(column)


def string_agg(column: str, *, separator: str = ",") -> StringAgg:
    """All texts in one."""
    return StringAgg(column, separator)
