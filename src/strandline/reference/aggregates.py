"""Add, merge, take back, result: each aggregate as an accumulator that is never changed in place.

There are few kinds of accumulator: numbers that add up, counts by value, entries sorted and cut to the first few, bits,
registers. What an aggregate adds to its kind stands on its line in `way_of`.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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

_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Way:
    """How an aggregate is computed. `single` is the accumulator of one element; `retract` takes such a one back."""

    empty: Any
    single: Callable[[Element], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    retract: Callable[[Any, Any], Any] | None = None
    add: Callable[[Any, Any], Any] | None = None
    """Where one element is not added by merging it: only a user's own aggregate may be without a merge."""


def values_of(aggregates: Iterable[tuple[str, Aggregate]], elements: Iterable[Element]) -> dict[str, Any]:
    """What a pane over these elements says."""
    contents = tuple(elements)
    return {name: value_of(aggregate, contents) for name, aggregate in aggregates}


def value_of(aggregate: Aggregate, elements: Iterable[Element]) -> Any:
    """One aggregate over these elements; those that were taken back leave no trace."""
    way = way_of(aggregate)
    join, kept = way.add or way.merge, way.empty
    left, unmet = _settled(elements)
    try:
        for element in left:
            if not _is_left_out(aggregate, element):
                kept = join(kept, way.single(element))
        if isinstance(aggregate, Count | Sum | Mean):
            for element in unmet:
                kept = retract(aggregate, kept, element)
        return way.result(kept)
    except (TypeError, ValueError, ArithmeticError) as problem:
        raise InvalidAggregate(
            f"{aggregate} cannot be computed", detail=str(problem), hint="look at the types of its column's values"
        ) from None


def _settled(elements: Iterable[Element]) -> tuple[list[Element], list[Element]]:
    """Elements without those that others take back, in any order; and those who found nothing to take back."""
    told, unmet = [*elements], list[Element]()
    left = [element for element in told if not element.retraction]
    for taker in (element for element in told if element.retraction):
        same = [each for each in left if each.at == taker.at and each.columns == taker.columns]
        if same:
            left.remove(same[0])
        else:
            unmet.append(taker)
    return left, unmet


def create(aggregate: Aggregate) -> Any:
    """The accumulator of no elements."""
    return way_of(aggregate).empty


def add(aggregate: Aggregate, kept: Any, element: Element) -> Any:
    """The accumulator with one more element."""
    way = way_of(aggregate)
    return kept if _is_left_out(aggregate, element) else (way.add or way.merge)(kept, way.single(element))


def merge(aggregate: Aggregate, left: Any, right: Any) -> Any:
    """The accumulator of the elements of both."""
    return way_of(aggregate).merge(left, right)


def retract(aggregate: Aggregate, kept: Any, element: Element) -> Any:
    """The accumulator without an element that was added before."""
    way = way_of(aggregate)
    if way.retract is None:
        raise StateError(f"nothing can be taken back from {aggregate}", hint="compute it anew from what is left")
    return kept if _is_left_out(aggregate, element) else way.retract(kept, way.single(element))


def result(aggregate: Aggregate, kept: Any) -> Any:
    """What the accumulator says."""
    return way_of(aggregate).result(kept)


def _is_left_out(aggregate: Aggregate, element: Element) -> bool:
    """Nulls are left out; Collect keeps them."""
    if isinstance(aggregate, Collect):
        return False
    return any(element.columns.get(name) is None for name in columns_of(aggregate))


def way_of(aggregate: Aggregate) -> Way:  # noqa: C901, PLR0912 - one line a member
    """An aggregate's kind of accumulator, what one element adds to it, and how it is read."""
    value = _reader(aggregate.column)
    by = _reader(getattr(aggregate, "by", None))
    match aggregate:
        case Count():
            return _numbers(lambda _: (1,), (0,), lambda kept: kept[0])
        case Sum():
            return _numbers(lambda each: (value(each),), (0,), lambda kept: _inside(kept[0]))
        case Mean():
            return _numbers(lambda each: (1, value(each)), (0, 0), lambda kept: kept[1] / kept[0] if kept[0] else None)
        case Variance(_, population):
            return _numbers(lambda each: _powers(value(each)), (0, 0, 0, 0), lambda kept: _variance(kept, population))
        case StdDev(_, population):
            return _numbers(
                lambda each: _powers(value(each)), (0, 0, 0, 0), lambda kept: _root(_variance(kept, population))
            )
        case AnyTrue():
            return _counts(lambda each: bool(value(each)), lambda kept: True in kept if kept else None)
        case AllTrue():
            return _counts(lambda each: bool(value(each)), lambda kept: False not in kept if kept else None)
        case CountDistinct():
            return _counts(lambda each: rank(value(each)), len)
        case Collect():
            return _counts(lambda each: _Entry(position(each)[:3], value(each)), _listed)
        case Quantile(_, q):
            return _counts(lambda each: sketches.bucket(value(each)), lambda kept: sketches.quantile(kept, q))
        case Min():
            return _first(1, lambda each: rank(value(each)), value, _only)
        case Max():
            return _first(1, lambda each: (_Down(rank(value(each))),), value, _only)
        case First():
            return _first(1, position, value, _only)
        case Last():
            return _first(1, lambda each: (_Down(position(each)),), value, _only)
        case ArgMin():
            return _first(1, lambda each: (rank(by(each)), position(each)), value, _only)
        case ArgMax():
            return _first(1, lambda each: (_Down(rank(by(each))), position(each)), value, _only)
        case TopK(_, k, other):
            greatest = value if other is None else by
            return _first(k, lambda each: (_Down(rank(greatest(each))), position(each)), value, list)
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


def _numbers(single: Callable[[Element], Any], empty: tuple[int, ...], result: Callable[[Any], Any]) -> Way:
    """Numbers side by side that add up and are taken away again."""

    def merge(left: Any, right: Any) -> Any:
        return tuple(map(operator.add, left, right))

    def retract(kept: Any, one: Any) -> Any:
        return tuple(map(operator.sub, kept, one))

    return Way(empty, single, merge, result, retract)


def _inside(total: Any) -> Any:
    """A sum of integers is told as long as it is well inside 64 bits."""
    return None if isinstance(total, int) and abs(total) >= _LIMIT else total


def _powers(value: Any) -> tuple[int, Fraction | int, Fraction | int, int]:
    """One value for a variance: how many, itself and its square exactly, and how many are not finite."""
    exact = Fraction(value) if math.isfinite(value) else None
    return (1, 0, 0, 1) if exact is None else (1, exact, exact * exact, 0)


def _variance(kept: tuple[int, Fraction, Fraction, int], population: bool) -> float | None:
    """Exact until it is told as a double; one value that is not finite makes it NaN."""
    many, total, squares, odd = kept
    divisor = many if population else many - 1
    if divisor < 1:
        return None
    return math.nan if odd else float((squares - Fraction(total * total, many)) / divisor)


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


def _counts(thing: Callable[[Element], Any], result: Callable[[Any], Any]) -> Way:
    """How often each thing was added; what was taken back as often as it was added is absent."""

    def single(element: Element) -> dict[Any, int]:
        found = thing(element)
        return {} if found is None else {found: 1}

    def merge(left: Mapping[Any, int], right: Mapping[Any, int]) -> dict[Any, int]:
        return {**left, **{each: left.get(each, 0) + many for each, many in right.items()}}

    def retract(kept: Mapping[Any, int], one: Mapping[Any, int]) -> dict[Any, int]:
        left = {each: many - one.get(each, 0) for each, many in kept.items()}
        if not one.keys() <= kept.keys():
            raise StateError("a value is taken back that was never added", detail=f"{[*one]}")
        return {each: many for each, many in left.items() if many}

    return Way({}, single, merge, result, retract)


def _listed(kept: Mapping["_Entry", int]) -> list[Any]:
    return [entry.value for entry in sorted(kept) for _ in range(kept[entry])]


def _first(
    limit: int | None,
    order: Callable[[Element], Rank],
    value: Callable[[Element], Any],
    result: Callable[[list[Any]], Any],
) -> Way:
    """Values sorted by an order of their elements, and only the first few of them kept."""

    def single(element: Element) -> tuple[_Entry, ...]:
        return (_Entry(order(element), value(element)),)

    def merge(left: tuple[_Entry, ...], right: tuple[_Entry, ...]) -> tuple[_Entry, ...]:
        return tuple(sorted(left + right)[:limit])

    return Way((), single, merge, lambda kept: result([entry.value for entry in kept]))


def _only(values: list[Any]) -> Any:
    return values[0] if values else None


def _bits(value: Callable[[Element], Any], join: Callable[[int, int], int]) -> Way:
    def merge(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
        return (join(left[0], right[0]),) if left and right else left or right

    return Way((), lambda each: (value(each),), merge, lambda kept: kept[0] if kept else None)


def _xor(value: Callable[[Element], Any]) -> Way:
    """How many values, and all of them xor-ed: adding one twice takes it away."""

    def merge(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        return (left[0] + right[0], left[1] ^ right[1])

    def retract(kept: tuple[int, int], one: tuple[int, int]) -> tuple[int, int]:
        return (kept[0] - one[0], kept[1] ^ one[1])

    return Way((0, 0), lambda each: (1, value(each)), merge, lambda kept: kept[1] if kept[0] else None, retract)


def _registers(value: Callable[[Element], Any], precision: int) -> Way:
    """The highest position that each register has seen."""

    def single(element: Element) -> dict[int, int]:
        return dict([sketches.register(value(element), precision)])

    def merge(left: Mapping[int, int], right: Mapping[int, int]) -> dict[int, int]:
        return {**left, **{chosen: max(left.get(chosen, 0), seen) for chosen, seen in right.items()}}

    return Way({}, single, merge, lambda kept: sketches.estimate(kept, precision))


def _user(aggregate: UserAggregate, value: Callable[[Element], Any]) -> Way:
    def merge(left: Any, right: Any) -> Any:
        if aggregate.merge is None:
            raise StateError(f"the aggregate {aggregate.name!r} cannot be merged", hint="give it a merge function")
        return aggregate.merge(left, right)

    return Way(aggregate.create(), value, merge, aggregate.result, aggregate.retract, aggregate.add)


class _Entry:
    """A value under the order it is sorted by; equal in both, entries are the same."""

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


class _Down:
    """A rank that sorts the other way round."""

    __slots__ = ("of",)

    def __init__(self, of: Rank) -> None:
        self.of = of

    def __lt__(self, other: "_Down") -> bool:
        return other.of < self.of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Down) and self.of == other.of

    def __hash__(self) -> int:
        return hash(self.of)
