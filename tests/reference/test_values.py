"""The order of values of all types."""

from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

from strandline.model.elements import Element, Timestamp
from strandline.reference.values import position, rank


def mixed(values: list[Any]) -> list[Any]:
    return Random(7).sample(values, len(values))


def test_values_of_all_types_are_ordered() -> None:
    ordered = [
        *(
            None,
            False,
            True,
            -1,
            Decimal("0.5"),
            Fraction(3, 4),
            1,
            1.5,
            float("inf"),
            float("nan"),
            "",
            "a",
            b"",
            b"a",
        ),
        *(
            datetime(2024, 1, 1, tzinfo=UTC),
            datetime(2024, 1, 2, tzinfo=UTC),
            date(2024, 1, 1),
            [],
            [1],
            [1, "a"],
            {},
            {"a": 1},
        ),
        *(Ellipsis,),
    ]
    assert sorted(mixed(ordered), key=rank) == ordered


def test_one_differs_from_true_and_equals_its_float() -> None:
    assert rank(1) == rank(1.0)
    assert rank(1) != rank(True)
    assert rank([0]) != rank([False])


def test_a_datetime_without_a_zone_is_utc() -> None:
    assert rank(datetime(2024, 1, 1)) == rank(datetime(2024, 1, 1, tzinfo=UTC))  # noqa: DTZ001 - the point


def test_nan_is_equal_to_itself() -> None:
    assert rank(float("nan")) == rank(float("nan")) == rank(Decimal("nan"))


def test_elements_are_ordered_by_time_then_source_then_row() -> None:
    rows = [
        Element(Timestamp(1), "k", {"v": 9}, "p1", 9),
        Element(Timestamp(2), "k", {"v": 9}, "p0", 5),
        Element(Timestamp(2), "k", {"v": 1}, "p0", 6),
        Element(Timestamp(2), "k", {"v": 1}, "p1", 0),
        Element(Timestamp(2), "k", {"v": 2}, "p1", 0),
    ]
    assert sorted(mixed(rows), key=position) == rows
