"""Contract of aggregates: merging in any order equals adding, and retracted values have no effect."""

import math
from collections.abc import Sequence
from typing import Any, Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidAggregate, StateError
from strandline.model import aggregates as model
from strandline.model.aggregates import Aggregate, UserAggregate
from strandline.model.elements import Element, Timestamp
from strandline.reference.aggregates import add, create, merge, result, retract, value_of

USERS = UserAggregate(
    "v", lambda: 0, lambda kept, value: kept + value, lambda kept: kept, lambda a, b: a + b, lambda a, b: a - b
)
ALL: Final[Sequence[Aggregate]] = (
    model.Count(),
    model.Count("v"),
    model.Sum("v"),
    model.Min("v"),
    model.Max("v"),
    model.Mean("v"),
    model.Variance("v"),
    model.Variance("v", population=True),
    model.StdDev("v"),
    model.First("v"),
    model.Last("v"),
    model.ArgMin("w", "v"),
    model.ArgMax("w", "v"),
    model.Collect("v"),
    model.CountDistinct("v"),
    model.ApproxCountDistinct("v", 6),
    model.Quantile("v", 0.5),
    model.TopK("v", 2),
    model.TopK("w", 2, "v"),
    model.AnyTrue("b"),
    model.AllTrue("b"),
    model.BitAnd("v"),
    model.BitOr("v"),
    model.BitXor("v"),
    model.StringAgg("w"),
    USERS,
)
EMPTY: Final = {
    0: (model.Count, model.Sum, model.CountDistinct, model.ApproxCountDistinct, UserAggregate),
    (): (model.Collect, model.TopK),
}

VALUES = st.tuples(
    st.integers(0, 5), st.none() | st.integers(-8, 8), st.none() | st.sampled_from("xyz"), st.none() | st.booleans()
)


def elements(rows: Sequence[tuple[Any, ...]]) -> list[Element]:
    return [
        Element(Timestamp(at), "k", {"v": v, "w": w, "b": b}, offset=place) for place, (at, v, w, b) in enumerate(rows)
    ]


ELEMENTS = st.lists(VALUES, max_size=8).map(elements)


def called(aggregate: Aggregate) -> str:
    """The representation of an aggregate, without the memory addresses of functions."""
    return aggregate.name if isinstance(aggregate, UserAggregate) else repr(aggregate)


each_aggregate = pytest.mark.parametrize("aggregate", ALL, ids=called)


def added(aggregate: Aggregate, rows: Sequence[Element]) -> Any:
    kept = create(aggregate)
    for row in rows:
        kept = add(aggregate, kept, row)
    return kept


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    return bool(left == right)


def test_every_aggregate_of_the_model_is_tried_here() -> None:
    assert {type(aggregate) for aggregate in ALL} == {*get_args(Aggregate)}


@each_aggregate
@given(rows=ELEMENTS, cut=st.integers(0, 8), order=st.randoms(use_true_random=False))
def test_merging_parts_in_any_order_is_adding(aggregate: Aggregate, rows: list[Element], cut: int, order: Any) -> None:
    whole = result(aggregate, added(aggregate, rows))
    shuffled = list(rows)
    order.shuffle(shuffled)
    parts = [added(aggregate, shuffled[:cut]), added(aggregate, shuffled[cut:])]
    assert same(result(aggregate, merge(aggregate, *parts)), whole)
    assert same(result(aggregate, merge(aggregate, *reversed(parts))), whole)


@each_aggregate
@given(rows=ELEMENTS)
def test_the_empty_part_changes_nothing(aggregate: Aggregate, rows: list[Element]) -> None:
    whole = added(aggregate, rows)
    assert same(result(aggregate, merge(aggregate, whole, create(aggregate))), result(aggregate, whole))
    assert same(result(aggregate, merge(aggregate, create(aggregate), whole)), result(aggregate, whole))


@pytest.mark.parametrize("aggregate", [one for one in ALL if one.retracts], ids=called)
@given(rows=ELEMENTS, more=ELEMENTS, order=st.randoms(use_true_random=False))
def test_a_retracted_value_has_no_effect(
    aggregate: Aggregate, rows: list[Element], more: list[Element], order: Any
) -> None:
    everything = [*rows, *more]
    order.shuffle(everything)
    kept = added(aggregate, everything)
    for element in more:
        kept = retract(aggregate, kept, element)
    assert same(result(aggregate, kept), result(aggregate, added(aggregate, rows)))


@pytest.mark.parametrize("aggregate", [one for one in ALL if not one.retracts], ids=called)
def test_an_aggregate_without_an_inverse_says_so(aggregate: Aggregate) -> None:
    with pytest.raises(StateError, match="cannot retract an element"):
        retract(aggregate, create(aggregate), elements([(0, 1, "x", True)])[0])


@each_aggregate
def test_over_no_elements_counts_are_zero_lists_empty_and_all_else_null(aggregate: Aggregate) -> None:
    content = value_of(aggregate, [])
    expected = next((result for result, kinds in EMPTY.items() if isinstance(aggregate, kinds)), None)
    assert (tuple(content) if isinstance(content, list) else content) == expected


@each_aggregate
def test_nulls_alone_are_like_nothing(aggregate: Aggregate) -> None:
    nulls = elements([(0, None, None, None), (1, None, None, None)])
    match aggregate:
        case model.Count(None):
            assert value_of(aggregate, nulls) == 2
        case model.Collect():
            assert value_of(aggregate, nulls) == [None, None]
        case _:
            assert value_of(aggregate, nulls) == value_of(aggregate, [])


@given(rows=ELEMENTS)
def test_an_accumulator_is_not_changed_in_place(rows: list[Element]) -> None:
    more = elements([(9, 3, "x", True)])[0]
    for aggregate in ALL:
        kept = added(aggregate, rows)
        before = result(aggregate, kept)
        add(aggregate, kept, more)
        merge(aggregate, kept, kept)
        assert same(result(aggregate, kept), before)


def test_a_user_aggregate_without_merge_or_retract_raises_an_error() -> None:
    longest = UserAggregate("w", str, lambda kept, word: max(kept, word, key=len), len, name="longest")
    rows = elements([(0, 1, "x", True), (1, 1, "zz", True)])
    assert value_of(longest, rows) == 2
    with pytest.raises(StateError, match="'longest' cannot be merged"):
        merge(longest, "a", "b")
    with pytest.raises(StateError, match="cannot retract an element"):
        retract(longest, "a", rows[0])


def test_retracting_a_value_that_was_never_added_is_an_error() -> None:
    with pytest.raises(StateError, match="never added"):
        retract(model.CountDistinct("v"), create(model.CountDistinct("v")), elements([(0, 1, "x", True)])[0])


@pytest.mark.parametrize(
    "broken",
    [model.Sum("w"), model.Mean("w"), model.BitAnd("w"), model.Variance("w"), model.Quantile("w", 0.5)],
    ids=called,
)
def test_errors_about_wrong_types_name_the_aggregate(broken: Aggregate) -> None:
    with pytest.raises(InvalidAggregate, match=f"{type(broken).__name__}.*cannot be computed"):
        value_of(broken, elements([(0, 1, "x", True), (1, 1, "y", True)]))


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (model.Variance("v"), 4.0 + 2 / 3),
        (model.Variance("v", population=True), 3.5),
        (model.StdDev("v", population=True), math.sqrt(3.5)),
        (model.Mean("v"), 3.0),
        (model.First("v"), 2),
        (model.Last("v"), 6),
        (model.ArgMax("w", "v"), "d"),
        (model.ArgMin("w", "v"), "b"),
        (model.TopK("v", 3), [6, 3, 2]),
        (model.TopK("w", 3, "v"), ["d", "c", "a"]),
        (model.StringAgg("w", "-"), "a-b-c-d"),
        (model.Quantile("v", 0), 1.0078125),
        (model.CountDistinct("v"), 4),
        (model.BitXor("v"), 2 ^ 1 ^ 3 ^ 6),
        (model.BitAnd("v"), 0),
        (model.BitOr("v"), 7),
        (model.AnyTrue("b"), True),
        (model.AllTrue("b"), False),
    ],
    ids=called,
)
def test_each_aggregate_returns_what_its_docstring_says(aggregate: Aggregate, expected: Any) -> None:
    rows = elements([(1, 2, "a", True), (1, 1, "b", False), (2, 3, "c", None), (3, 6, "d", True)])
    assert same(value_of(aggregate, list(reversed(rows))), expected)


def test_a_variance_of_far_away_values_is_still_exact() -> None:
    rows = elements([(0, 10**12 + 1, None, None), (0, 10**12 + 2, None, None), (0, 10**12 + 3, None, None)])
    assert value_of(model.Variance("v"), rows) == 1.0


def test_one_value_that_is_not_finite_makes_a_variance_nan() -> None:
    rows = elements([(0, 1.0, None, None), (0, math.inf, None, None)])
    assert math.isnan(value_of(model.Variance("v"), rows))
    assert value_of(model.Variance("v"), rows[1:]) is None


def test_a_variance_needs_a_divisor() -> None:
    one = elements([(0, 5, None, None)])
    assert value_of(model.Variance("v"), one) is None
    assert value_of(model.Variance("v", population=True), one) == 0


def test_truth_and_one_are_different_values() -> None:
    rows = elements([(0, 1, None, None), (0, True, None, None), (0, 1.0, None, None)])
    assert value_of(model.CountDistinct("v"), rows) == 2
