"""Times that are numbers since 1970, in JSON and CSV."""

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.errors import PlanError
from strandline.formats.csv import Csv
from strandline.formats.json.codec import Json
from strandline.plan.nodes import to_plain
from strandline.ports.codecs import DETAIL, Decoded
from tests.formats.batches import raw

DDL = "team string, at timestamp"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FORMATS = [sl.json, sl.csv]
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
HINT = "; for numbers since 1970 use times={'at': 'ms'}, or 's', or 'us'"


def decode(form: Json | Csv, *numbers: str) -> Decoded:
    pattern = "red,%s" if isinstance(form, Csv) else '{"team": "red", "at": %s}'
    return form.decode(raw([(pattern % number).encode() for number in numbers]))


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    ("unit", "number", "time"),
    [
        ("s", "1714564800", NOON),
        ("s", "1714564800.25", NOON.replace(microsecond=250_000)),
        ("s", "-1", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("s", "-62135596800", datetime(1, 1, 1, tzinfo=UTC)),
        ("ms", "1714564800007", NOON.replace(microsecond=7_000)),
        ("us", "1714564800000007", NOON.replace(microsecond=7)),
        ("us", "253402300799999999", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ],
)
def test_numbers_are_read_in_their_declared_unit(format_: Any, unit: str, number: str, time: datetime) -> None:
    decoded = decode(format_(DDL, times={"at": unit}), number)
    assert decoded.rows["at"].to_list() == [time]
    assert decoded.rows.schema["at"] == pl.Datetime("us", "UTC")


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    ("unit", "number"),
    [
        ("s", "253402300800"),
        ("s", "-62135596801"),
        ("s", "1714564800000"),
        ("s", "NaN"),
        ("ms", "9223372036854775807"),
        ("ms", "-9223372036854775808"),
        ("us", "253402300800000000"),
    ],
)
def test_a_number_outside_the_years_1_to_9999_is_a_dead_letter(format_: Any, unit: str, number: str) -> None:
    decoded = decode(format_(DDL, times={"at": unit}), "5", number)
    assert decoded.rows.height == 1
    assert decoded.dead[DETAIL].to_list() == ["a number or a time out of the range of its type"]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("value", ['"2024-05-01T12:00:00Z"', "1.5", "true"])
def test_another_value_in_a_column_of_milliseconds_is_a_dead_letter(format_: Any, value: str) -> None:
    decoded = decode(format_(DDL, times={"at": "ms"}), value, "5")
    assert (decoded.rows.height, decoded.dead.height) == (1, 1)
    assert "times=" not in decoded.dead[DETAIL][0]


def test_an_undeclared_number_is_a_dead_letter_that_names_the_option() -> None:
    error = "JSON parse error: Column(/at) changed from string to number in row 0"
    assert decode(sl.json(DDL), "1714564800000", "5").dead[DETAIL].to_list() == [error + HINT] * 2
    assert decode(sl.csv(DDL), "5", "noon").dead[DETAIL].to_list() == [
        f"at: '5' is no timestamp{HINT}",
        "at: 'noon' is no timestamp",
    ]
    (other,) = sl.json(DDL).decode(raw([b'{"team": 5}'])).dead[DETAIL]
    assert "times=" not in other


def test_columns_without_a_unit_are_texts() -> None:
    form = sl.json("at timestamp, sent timestamp", times={"sent": "s"})
    decoded = form.decode(raw([b'{"at": "2024-05-01T12:00:00Z", "sent": 1714564800}', b"{}"]))
    assert decoded.rows.select(form.columns).rows() == [(NOON, NOON), (None, None)]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ("ms", "as times"),
        ({"when": "ms"}, "unknown column 'when'"),
        ({"team": "ms"}, "'team', which is a string"),
        ({"at": "ns"}, "unknown unit 'ns' of the times in 'at'"),
    ],
)
def test_unknown_columns_and_units_are_refused_when_the_pipeline_is_built(
    format_: Any, times: Any, problem: str
) -> None:
    with pytest.raises(PlanError, match=problem):
        format_(DDL, times=times)


@given(
    st.sampled_from(FORMATS),
    st.sampled_from(sorted(UNITS)),
    st.lists(st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))),  # noqa: DTZ001
)
def test_times_survive_a_round_trip_cut_to_their_unit(format_: Any, unit: str, found: list[datetime | None]) -> None:
    form = format_(DDL, times={"at": unit})
    shape: dict[str, Any] = {"team": pl.String, "at": pl.Datetime("us", "UTC")}
    rows = pl.DataFrame({"team": ["red"] * len(found), "at": found}, schema=shape)
    decoded = form.decode(raw(list(form.encode(rows))))
    assert decoded.dead.is_empty()
    micros = rows["at"].dt.timestamp("us")
    assert decoded.rows["at"].dt.timestamp("us").to_list() == (micros // UNITS[unit] * UNITS[unit]).to_list()


def test_a_format_without_units_is_stored_as_by_earlier_versions() -> None:
    """A checkpoint of an earlier version belongs to the same pipeline."""
    assert to_plain(sl.json(DDL)) == {"is": "Json", "ddl": DDL, "registry": None, "largest": 2**24}
    assert to_plain(sl.csv(DDL)) == {"is": "Csv", "ddl": DDL, "delimiter": ",", "largest": 2**24}
    assert to_plain(sl.csv(DDL, times={"at": "s"}))["times"] == [["at", "s"]]
