"""CSV: a line per record, values by position, and a dead letter for each value of a wrong type."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.errors import InvalidStep
from strandline.kernel.blocks.block import OFFSET
from strandline.ports.codecs import DETAIL, REASON
from tests.formats.batches import raw

FORM = sl.csv("team string, score long, at timestamp")
RED, BLUE = b"red,5,2024-05-01T12:00:00Z", b"blue,3,2024-05-01 12:00:00"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def test_lines_become_columns() -> None:
    decoded = FORM.decode(raw([RED, BLUE, b'"a ""b"", c",,', b"\xef\xbb\xbfred,1,\r\n", b'"two\nlines",2,', None]))
    assert decoded.rows.select(FORM.columns).rows() == [
        ("red", 5, NOON),
        ("blue", 3, NOON),
        ('a "b", c', None, None),
        ("red", 1, None),
        ("two\nlines", 2, None),
        (None, None, None),
    ]
    assert decoded.dead.is_empty()
    assert FORM.types == {"team": "string", "score": "long", "at": "timestamp"}


BAD = {
    "too few values": b"red,5",
    "too many values": RED + b",more",
    "empty": b"",
    "a text for a number": b"red,many,",
    "a fraction for a whole number": b"red,1.5,",
    "a number out of range": b"red,9223372036854775808,",
    "no time": b"red,5,noon",
    "a time in year 0": b"red,5,0000-01-01T00:00:00Z",
    "a quote that is open": b'"red,5,',
    "a quote in the middle": b'"red"x,5,',
    "two lines": b"red,5,\nblue,3,",
    "not UTF-8": b"\xff\xfe,5,",
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_line_is_a_dead_letter_and_its_neighbours_are_decoded(kind: str) -> None:
    decoded = FORM.decode(raw([RED, BAD[kind], BLUE]))
    assert decoded.rows.select(OFFSET, "team").rows() == [(100, "red"), (102, "blue")]
    assert decoded.dead.select(OFFSET, REASON).rows() == [(101, "undecodable")]
    assert decoded.dead[DETAIL][0]


def test_the_detail_names_the_column_and_the_value() -> None:
    assert FORM.decode(raw([b"red,many,"])).dead[DETAIL].to_list() == ["score: 'many' is no long"]


def test_a_line_of_twenty_megabytes_is_a_dead_letter_unless_the_limit_allows_it() -> None:
    long = b"r" * 20_000_000 + b",1,"
    assert FORM.decode(raw([RED, long])).dead[REASON].to_list() == ["too_large"]
    assert sl.csv(FORM.ddl, largest=2**25).decode(raw([RED, long])).rows.height == 2


def test_decimals_are_exact_or_refused() -> None:
    form = sl.csv("cost decimal(6, 2), won boolean", delimiter=";")
    decoded = form.decode(raw([b"1.5;true", b"1.505;false", b"99999;true", b"1e2;false", b"nan;true", b"2;yes"]))
    assert decoded.rows.select(form.columns).rows() == [(Decimal("1.50"), True), (Decimal(100), False)]
    assert decoded.dead.height == 4


@pytest.mark.parametrize("ddl", ["a array<long>", "b binary", "s struct<x: long>"])
def test_types_that_csv_cannot_hold_are_refused(ddl: str) -> None:
    with pytest.raises(InvalidStep, match="cannot be read from CSV"):
        sl.csv(ddl)


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n"])
def test_an_invalid_delimiter_is_refused(delimiter: str) -> None:
    with pytest.raises(InvalidStep, match="cannot be a delimiter"):
        sl.csv("a long", delimiter=delimiter)


texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
rows = st.lists(
    st.tuples(
        texts.filter(lambda text: text is None or not text.startswith("\ufeff")),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.booleans(),
        st.none() | st.datetimes(timezones=st.just(UTC)),
        st.none() | st.dates(),
        st.none() | st.decimals(-99, 99, places=2),
    ),
    max_size=4,
)


@given(rows)
def test_csv_values_survive_a_round_trip(found: list[tuple[Any, ...]]) -> None:
    form = sl.csv("a string, b long, c double, d boolean, e timestamp, f date, g decimal(6, 2)")
    frame = pl.DataFrame(found, schema=form.decode(raw([])).rows.select(form.columns).schema, orient="row")
    decoded = form.decode(raw(list(form.encode(frame))))
    assert decoded.dead.is_empty(), decoded.dead[DETAIL].to_list()
    assert decoded.rows.select(form.columns).rows() == frame.rows()


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_any_bytes_are_a_row_or_a_dead_letter(values: list[bytes]) -> None:
    decoded = FORM.decode(raw(values))
    assert sorted([*decoded.rows[OFFSET], *decoded.dead[OFFSET]]) == [100 + place for place in range(len(values))]
