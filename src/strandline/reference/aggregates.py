"""Compute each aggregate with an immutable accumulator: create, add, merge, retract, result.

There are few kinds of accumulator: sums, counts by value, sorted entries cut to the first few, bits, registers.
`accumulation_of` names the kind of each aggregate and what one element adds to it.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final, assert_never

from strandline.errors import InvalidAggregate, StateError
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
    columns_of,
)
from strandline.model.elements import Element
from strandline.reference import sketches
from strandline.reference.values import Rank, position, rank

_EXACT: Final = Context(prec=200)
_BITS: Final = 63
_DIGITS: Final = 38


@dataclass(frozen=True, slots=True)
class Accumulation:
    """The functions of an aggregate. `single` makes the accumulator of one element; `retract` removes such a one."""

    empty: Any
    single: Callable[[Element], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    retract: Callable[[Any, Any], Any] | None = None
    add: Callable[[Any, Any], Any] | None = None
    """Adds an element without merging; needed only by user aggregates, which may have no merge function."""


def values_of(aggregates: Iterable[tuple[str, Aggregate]], elements: Iterable[Element]) -> dict[str, Any]:
    """Return the values of a pane over these elements."""
    contents = tuple(elements)
    return {name: value_of(aggregate, contents) for name, aggregate in aggregates}


def value_of(aggregate: Aggregate, elements: Iterable[Element]) -> Any:
    """Compute one aggregate over these elements, without the elements that were retracted."""
    functions = accumulation_of(aggregate)
    join, state = functions.add or functions.merge, functions.empty
    remaining, unmatched = _apply_retractions(elements)
    try:
        for element in remaining:
            if not _is_ignored(aggregate, element):
                state = join(state, functions.single(element))
        if isinstance(aggregate, Count | Sum | Mean):
            for element in unmatched:
                state = retract(aggregate, state, element)
        return functions.result(state)
    except (TypeError, ValueError, ArithmeticError) as problem:
        raise InvalidAggregate(
            f"{aggregate} cannot be computed", detail=str(problem), hint="look at the types of its column's values"
        ) from None


def _apply_retractions(elements: Iterable[Element]) -> tuple[list[Element], list[Element]]:
    """Return the elements left after retractions, in any order, and the retractions that matched no element."""
    arrived, unmatched = [*elements], list[Element]()
    remaining = [element for element in arrived if not element.retraction]
    for retraction in (element for element in arrived if element.retraction):
        equal = [each for each in remaining if each.at == retraction.at and each.columns == retraction.columns]
        if equal:
            remaining.remove(equal[0])
        else:
            unmatched.append(retraction)
    return remaining, unmatched


def create(aggregate: Aggregate) -> Any:
    """Return the accumulator of no elements."""
    return accumulation_of(aggregate).empty


def add(aggregate: Aggregate, state: Any, element: Element) -> Any:
    """Return the accumulator with one more element."""
    functions = accumulation_of(aggregate)
    if _is_ignored(aggregate, element):
        return state
    return (functions.add or functions.merge)(state, functions.single(element))


def merge(aggregate: Aggregate, left: Any, right: Any) -> Any:
    """Return the accumulator of the elements of both."""
    return accumulation_of(aggregate).merge(left, right)


def retract(aggregate: Aggregate, state: Any, element: Element) -> Any:
    """Return the accumulator without an element that was added before."""
    functions = accumulation_of(aggregate)
    if functions.retract is None:
        raise StateError(f"{aggregate} cannot retract an element", hint="compute it again from the remaining ones")
    return state if _is_ignored(aggregate, element) else functions.retract(state, functions.single(element))


def result(aggregate: Aggregate, state: Any) -> Any:
    """Return the value of the accumulator."""
    return accumulation_of(aggregate).result(state)


def _is_ignored(aggregate: Aggregate, element: Element) -> bool:
    """Nulls are ignored, except by Collect."""
    if isinstance(aggregate, Collect):
        return False
    return any(element.columns.get(name) is None for name in columns_of(aggregate))


def accumulation_of(aggregate: Aggregate) -> Accumulation:  # noqa: C901, PLR0912 - one line a member
    """Return an aggregate's kind of accumulator, what one element adds to it, and how it is read."""
    value = _reader(aggregate.column)
    by = _reader(getattr(aggregate, "by", None))
    match aggregate:
        case Count():
            return _sums(lambda _: (1,), (0,), lambda state: state[0])
        case Sum():
            return _sums(lambda each: (value(each),), (0,), lambda state: _within_limit(state[0]))
        case Mean():
            return _sums(lambda each: (1, value(each)), (0, 0), lambda state: _ratio(state[1], state[0]))
        case Variance(_, population):
            return _sums(lambda each: _powers(value(each)), (0, 0, 0, 0), lambda state: _variance(state, population))
        case StdDev(_, population):
            return _sums(
                lambda each: _powers(value(each)), (0, 0, 0, 0), lambda state: _root(_variance(state, population))
            )
        case AnyTrue():
            return _counts(lambda each: bool(value(each)), lambda state: True in state if state else None)
        case AllTrue():
            return _counts(lambda each: bool(value(each)), lambda state: False not in state if state else None)
        case CountDistinct():
            return _counts(lambda each: rank(value(each)), len)
        case Collect():
            return _counts(lambda each: _Entry(position(each)[:4], value(each)), _listed)
        case Quantile(_, q):
            return _counts(lambda each: sketches.bucket(value(each)), lambda state: sketches.quantile(state, q))
        case Min():
            return _first(1, lambda each: rank(value(each)), value, _first_or_none)
        case Max():
            return _first(1, lambda each: (_Descending(rank(value(each))),), value, _first_or_none)
        case First():
            return _first(1, position, value, _first_or_none)
        case Last():
            return _first(1, lambda each: (_Descending(position(each)),), value, _first_or_none)
        case ArgMin():
            return _first(1, lambda each: (rank(by(each)), position(each)), value, _first_or_none)
        case ArgMax():
            return _first(1, lambda each: (_Descending(rank(by(each))), position(each)), value, _first_or_none)
        case TopK(_, k, other):
            greatest = value if other is None else by
            return _first(k, lambda each: (_Descending(rank(greatest(each))), position(each)), value, list)
        case StringAgg(_, separator):
            return _first(None, position, value, lambda texts: separator.join(map(str, texts)) if texts else None)
        case BitAnd():
            return _bits(value, operator.and_)
        case BitOr():
            return _bits(value, operator.or_)
        case BitXor():
            return _xor(value)
        case ApproxCountDistinct(_, precision):
            return _registers(value, precision)
        case UserAggregate():
            return _user(aggregate, value)
    assert_never(aggregate)


def _reader(column: str | None) -> Callable[[Element], Any]:
    return lambda element: None if column is None else element.columns.get(column)


def _sums(single: Callable[[Element], Any], empty: tuple[int, ...], result: Callable[[Any], Any]) -> Accumulation:
    """Accumulate a tuple of numbers by addition; retract by subtraction."""

    def merge(left: Any, right: Any) -> Any:
        return tuple(map(_add, left, right))

    def retract(state: Any, one: Any) -> Any:
        return tuple(map(_subtract, state, one))

    return Accumulation(empty, single, merge, result, retract)


def _add(one: Any, other: Any) -> Any:
    """Add two numbers; decimals without rounding."""
    is_decimal = isinstance(one, Decimal) or isinstance(other, Decimal)
    return _EXACT.add(one, other) if is_decimal else one + other


def _subtract(one: Any, other: Any) -> Any:
    return _EXACT.subtract(one, other) if isinstance(other, Decimal) else one - other


def _within_limit(total: Any) -> Any:
    """Return a sum, or null if it has more than 64 bits or 38 digits."""
    match total:
        case int():
            return total if -(1 << _BITS) <= total < 1 << _BITS else None
        case Decimal():
            return total if len(total.as_tuple().digits) <= _DIGITS else None
    return total


def _ratio(total: Any, many: int) -> float | None:
    """Divide exactly, and round once."""
    if not many:
        return None
    return total / many if isinstance(total, float) else _rounded(Fraction(total) / many)


def _rounded(exact: Fraction) -> float:
    """Round to a double; beyond its range to infinity."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _powers(value: Any) -> tuple[int, Fraction | int, Fraction | int, int]:
    """Return one value's contribution to a variance: count, exact value, exact square, count of non-finite values."""
    exact = Fraction(value) if math.isfinite(value) else None
    return (1, 0, 0, 1) if exact is None else (1, exact, exact * exact, 0)


def _variance(state: tuple[int, Fraction, Fraction, int], population: bool) -> float | None:
    """Compute exactly until the final conversion to double; a non-finite value makes the result NaN."""
    many, total, squares, not_finite = state
    divisor = many if population else many - 1
    if divisor < 1:
        return None
    return math.nan if not_finite else _rounded((squares - Fraction(total * total, many)) / divisor)


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


def _counts(thing: Callable[[Element], Any], result: Callable[[Any], Any]) -> Accumulation:
    """Count how often each value was added; a value retracted as often as it was added is absent."""

    def single(element: Element) -> dict[Any, int]:
        found = thing(element)
        return {} if found is None else {found: 1}

    def merge(left: Mapping[Any, int], right: Mapping[Any, int]) -> dict[Any, int]:
        return {**left, **{each: left.get(each, 0) + many for each, many in right.items()}}

    def retract(state: Mapping[Any, int], one: Mapping[Any, int]) -> dict[Any, int]:
        left = {each: many - one.get(each, 0) for each, many in state.items()}
        if not one.keys() <= state.keys():
            raise StateError("a value is retracted that was never added", detail=f"{[*one]}")
        return {each: many for each, many in left.items() if many}

    return Accumulation({}, single, merge, result, retract)


def _listed(state: Mapping["_Entry", int]) -> list[Any]:
    return [entry.value for entry in sorted(state) for _ in range(state[entry])]


def _first(
    limit: int | None,
    order: Callable[[Element], Rank],
    value: Callable[[Element], Any],
    result: Callable[[list[Any]], Any],
) -> Accumulation:
    """Sort values by an order of their elements, and keep only the first few."""

    def single(element: Element) -> tuple[_Entry, ...]:
        return (_Entry(order(element), value(element)),)

    def merge(left: tuple[_Entry, ...], right: tuple[_Entry, ...]) -> tuple[_Entry, ...]:
        return tuple(sorted(left + right)[:limit])

    return Accumulation((), single, merge, lambda state: result([entry.value for entry in state]))


def _first_or_none(values: list[Any]) -> Any:
    return values[0] if values else None


def _bits(value: Callable[[Element], Any], join: Callable[[int, int], int]) -> Accumulation:
    def merge(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
        return (join(left[0], right[0]),) if left and right else left or right

    return Accumulation((), lambda each: (value(each),), merge, lambda state: state[0] if state else None)


def _xor(value: Callable[[Element], Any]) -> Accumulation:
    """Accumulate the count and the xor of all values: xor with the same value again removes it."""

    def merge(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        return (left[0] + right[0], left[1] ^ right[1])

    def retract(state: tuple[int, int], one: tuple[int, int]) -> tuple[int, int]:
        return (state[0] - one[0], state[1] ^ one[1])

    def result(state: tuple[int, int]) -> int | None:
        return state[1] if state[0] else None

    return Accumulation((0, 0), lambda each: (1, value(each)), merge, result, retract)


def _registers(value: Callable[[Element], Any], precision: int) -> Accumulation:
    """Keep the highest position that each register has seen."""

    def single(element: Element) -> dict[int, int]:
        return dict([sketches.register(value(element), precision)])

    def merge(left: Mapping[int, int], right: Mapping[int, int]) -> dict[int, int]:
        return {**left, **{chosen: max(left.get(chosen, 0), seen) for chosen, seen in right.items()}}

    return Accumulation({}, single, merge, lambda state: sketches.estimate(state, precision))


def _user(aggregate: UserAggregate, value: Callable[[Element], Any]) -> Accumulation:
    def merge(left: Any, right: Any) -> Any:
        if aggregate.merge is None:
            raise StateError(f"the aggregate {aggregate.name!r} cannot be merged", hint="give it a merge function")
        return aggregate.merge(left, right)

    return Accumulation(aggregate.create(), value, merge, aggregate.result, aggregate.retract, aggregate.add)


class _Entry:
    """A value with its sort order; entries equal in both are equal."""

    __slots__ = ("order", "value")

    def __init__(self, order: Rank, value: Any) -> None:
        self.order = (order, rank(value))
        self.value = value

    def __lt__(self, other: "_Entry") -> bool:
        return self.order < other.order

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Entry) and self.order == other.order

    def __hash__(self) -> int:
        return hash(self.order)

    def __repr__(self) -> str:
        return repr(self.value)


class _Descending:
    """A rank in descending order."""

    __slots__ = ("of",)

    def __init__(self, of: Rank) -> None:
        self.of = of

    def __lt__(self, other: "_Descending") -> bool:
        return other.of < self.of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.of == other.of

    def __hash__(self) -> int:
        return hash(self.of)
