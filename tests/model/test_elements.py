"""Durations and timestamps: notations, and arithmetic at the ends of time."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from strandline.errors import InvalidTime
from strandline.model.elements import BEGINNING, END, INSTANT, ZERO, Duration, Timestamp, duration, instant


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 90_000), ("1h30m", 5_400_000), ("-5s", -5_000), ("1.5s", 1_500), ("250ms", 250), ("7d", 604_800_000)],
)
def test_a_duration_is_parsed(text: str, ms: int) -> None:
    assert Duration.parse(text) == Duration(ms)
    assert Duration.parse(str(Duration(ms))) == Duration(ms)


@pytest.mark.parametrize("text", ["", "soon", "5", "5 parsecs", "s", "1m5"])
def test_an_invalid_duration_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidTime, match="is not a length of time") as error:
        Duration.parse(text)
    assert "90s" in error.value.hint


def test_a_duration_finer_than_a_millisecond_is_refused() -> None:
    with pytest.raises(InvalidTime, match="whole number of milliseconds"):
        Duration.parse("1.0005s")
    with pytest.raises(InvalidTime, match="whole number of milliseconds"):
        duration(timedelta(microseconds=1))


@pytest.mark.parametrize("given", [Duration(120_000), timedelta(minutes=2), "2m"])
def test_a_duration_may_be_given_in_many_ways(given: Any) -> None:
    assert duration(given) == duration(minutes=2) == duration(minutes=1, seconds=60)


def test_a_duration_is_given_once_and_in_known_units() -> None:
    with pytest.raises(InvalidTime, match="given twice"):
        duration("1m", seconds=3)
    with pytest.raises(InvalidTime, match="missing"):
        duration()
    with pytest.raises(InvalidTime, match="no such unit of time: weeks"):
        duration(weeks=2)
    with pytest.raises(InvalidTime, match="5 is not a length of time"):
        duration(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        Timestamp(5_000),
        Duration(5_000),
        5_000,
        "5s",
        "1970-01-01T00:00:05Z",
        "1970-01-01T01:00:05+01:00",
        datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC),
        datetime(1970, 1, 1, 2, 0, 5, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_a_timestamp_may_be_given_in_many_ways(given: Any) -> None:
    assert instant(given) == Timestamp(5_000)


@pytest.mark.parametrize("given", ["soon", True, 1.5, None, [], 2**63])
def test_an_invalid_timestamp_is_refused(given: Any) -> None:
    with pytest.raises(InvalidTime, match="is not a time"):
        instant(given)


def test_the_ends_of_time_can_be_written() -> None:
    assert (instant("-inf"), instant("+inf"), instant("inf")) == (BEGINNING, END, END)
    assert (str(BEGINNING), str(END)) == ("-inf", "+inf")


def test_an_event_time_is_rounded_down() -> None:
    assert Timestamp.from_datetime(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == Timestamp(-1)


def test_sums_stay_on_the_ends_of_time() -> None:
    assert Timestamp(END.ms - 1) + Duration(5) == END
    assert Timestamp(BEGINNING.ms + 1) - Duration(5) == BEGINNING
    assert END - INSTANT == END
    assert BEGINNING + INSTANT == BEGINNING
    assert Timestamp(7) + ZERO == Timestamp(7) == Timestamp(8) - INSTANT
