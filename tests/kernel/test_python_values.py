"""Times outside Python's calendar become texts on their way to a message; they end no job."""

import json
from contextlib import nullcontext
from datetime import date, datetime

import polars as pl
import pytest

from strandline.connectors.kafka.encode_rows import encode_or_refuse
from strandline.connectors.sql.isolate_bad_rows import Isolation
from strandline.formats.refused_rows import refused_letters
from strandline.kernel.blocks.python_values import python_rows, python_values
from strandline.kernel.dead_letters import RAW
from strandline.ports.dead_letter_masking import with_raw

ENDS = (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))  # noqa: DTZ001 - without a zone
DAY, INSTANT = 3_000_000, 253_402_300_800_000_000


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pl.Series([0, DAY, None], dtype=pl.Int32).cast(pl.Date), ["1970-01-01", f"{DAY} days since 1970-01-01", None]),
        (pl.Series([2**31 - 1], dtype=pl.Int32).cast(pl.Date), [f"{2**31 - 1} days since 1970-01-01"]),
        (pl.Series([2**63 - 1]).cast(pl.Datetime("us", "UTC")), [f"{2**63 - 1} us since 1970-01-01"]),
        (pl.Series([-(2**63)]).cast(pl.Datetime("ms")), [f"{-(2**63)} ms since 1970-01-01"]),
        (pl.Series([INSTANT]).cast(pl.Datetime("us")), [f"{INSTANT} us since 1970-01-01"]),
        (pl.Series([2**63 - 1]).cast(pl.Duration("ms")), [2**63 - 1]),
    ],
    ids=["a day", "the last day", "the last instant", "the first instant", "year 10000", "a duration"],
)
def test_a_time_outside_the_calendar_becomes_a_text(values: pl.Series, texts: list[object]) -> None:
    assert python_values(values) == texts
    assert python_rows(values.to_frame("x")) == [{"x": text} for text in texts]


def test_times_inside_the_calendar_stay_as_they_are() -> None:
    frame = pl.DataFrame({"day": [date.min, date.max, None], "at": [*ENDS, None], "n": [1, 2, 3]})
    assert python_rows(frame) == frame.to_dicts()


def test_a_nested_time_outside_the_calendar_becomes_a_text() -> None:
    days = pl.Series("days", [[DAY]], dtype=pl.List(pl.Int32)).cast(pl.List(pl.Date))
    assert python_rows(days.to_frame()) == [{"days": "a List(Date) with a time outside the calendar"}]


FAR = pl.DataFrame({"n": [1, 2, 3], "day": pl.Series([0, DAY, 2**31 - 1], dtype=pl.Int32).cast(pl.Date)})


def test_a_row_that_has_no_python_form_is_refused_and_not_an_error() -> None:
    written: list[int] = []

    def put(part: pl.DataFrame) -> None:
        written.extend(row["n"] for row in part.to_dicts())

    isolation = Isolation(put, nullcontext)
    isolation.write(FAR, lambda _: None)
    refused = isolation.refused
    assert written == [1]
    assert [each.row["n"] for each in refused] == [2, 3]
    letters = refused_letters(refused, sink="a table", lineage="job", clock=0, mask=())
    assert {json.loads(raw)["day"] for raw in letters[RAW]} == {
        f"{DAY} days since 1970-01-01", f"{2**31 - 1} days since 1970-01-01",
    }  # fmt: skip


def test_a_row_that_a_format_cannot_encode_is_refused_and_not_an_error() -> None:
    def write(part: pl.DataFrame) -> pl.Series:
        return pl.Series([str(row).encode() for row in part.to_dicts()], dtype=pl.Binary)

    rows, values, refused = encode_or_refuse(FAR, write, 0)
    assert rows["n"].to_list() == [1]
    assert len(values) == 1
    assert [each.row["n"] for each in refused] == [2, 3]


def test_the_dead_letter_of_a_row_with_a_far_time_has_its_text() -> None:
    rows = with_raw(FAR.with_columns(pl.lit("0").alias("@partition")))
    assert json.loads(rows[RAW][2]) == {"n": 3, "day": f"{2**31 - 1} days since 1970-01-01"}
