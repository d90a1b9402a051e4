"""JSON records: a bad record is a single dead letter, and its neighbours are decoded."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import strandline as sl
from strandline.errors import InvalidStep
from strandline.formats.json.codec import Json
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.ports.codecs import DETAIL, RAW, REASON, Decoded
from tests.formats.batches import raw
from tests.formats.registries import FakeRegistry

SCORES = sl.json("team string, score long, at timestamp")
WIDE = sl.json("text string, whole long, narrow int, real double, truth boolean")

RED = b'{"team": "red", "score": 5, "at": "2024-05-01T12:00:00.000Z"}'
BLUE = b'{"team": "blue", "score": 3, "at": "2024-05-01T12:00:01.000Z"}'


def decode(*values: bytes | None, form: Json = SCORES) -> Decoded:
    return form.decode(raw(list(values)))


def test_records_become_columns_beside_their_position_and_bytes() -> None:
    decoded = decode(RED, BLUE)
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert decoded.rows.rows() == [
        ("0", 100, RED, "red", 5, noon),
        ("0", 101, BLUE, "blue", 3, noon.replace(second=1)),
    ]
    assert decoded.rows.columns == [PARTITION, OFFSET, RAW, "team", "score", "at"]
    assert decoded.dead.is_empty()


@pytest.mark.slow
def test_empty_frames_have_their_columns() -> None:
    shape = {PARTITION: pl.String, OFFSET: pl.Int64, RAW: pl.Binary}
    rows = shape | {"team": pl.String, "score": pl.Int64, "at": pl.Datetime("us", "UTC")}
    for values in ([], [RED], [b"?"]):
        decoded = decode(*values)
        assert dict(decoded.rows.schema) == rows
        assert dict(decoded.dead.schema) == shape | {REASON: pl.String, DETAIL: pl.String}


def test_fields_may_be_in_any_order_missing_null_or_unknown() -> None:
    decoded = decode(b'{"score": 1, "x": {"y": [1, {}]}, "team": "red"}', b'{"team": null}', b"{}")
    assert decoded.rows.select("team", "score", "at").rows() == [
        ("red", 1, None),
        (None, None, None),
        (None, None, None),
    ]


def test_every_type_is_decoded() -> None:
    record = (
        b'{"text": "\\u00e9 \\"q\\"", "whole": -9223372036854775808, "narrow": 2147483647, "real": 1e3, "truth": true}'
    )
    (row,) = decode(record, form=WIDE).rows.select(WIDE.columns).rows()
    assert row == ('é "q"', -(2**63), 2**31 - 1, 1000.0, True)


@pytest.mark.parametrize(
    "form",
    [
        b'  {"team": "red", "score": 1}\r\n',
        b'\xef\xbb\xbf{"team": "red", "score": 1}',
        b'{\n  "team": "red",\n  "score": 1\n}\n',
    ],
    ids=["space around it", "a byte order mark", "written over several lines"],
)
def test_other_ways_to_write_an_object(form: bytes) -> None:
    decoded = decode(RED, form, BLUE)
    assert decoded.rows.select("team", "score").rows() == [("red", 5), ("red", 1), ("blue", 3)]
    assert decoded.rows[RAW][1] == form


BAD: dict[str, bytes] = {
    "truncated": RED[:-9],
    "truncated after a brace": b'{"team": {"name": "red"}',
    "a text for a number": b'{"team": "red", "score": "many"}',
    "a number for a text": b'{"team": 5, "score": 5}',
    "an object for a number": b'{"team": "red", "score": {}}',
    "a list for a text": b'{"team": ["red"], "score": 5}',
    "a fraction for a whole number": b'{"team": "red", "score": 1.5}',
    "a whole number written as a fraction": b'{"team": "red", "score": 1.0}',
    "a number out of range": b'{"team": "red", "score": 9223372036854775808}',
    "a number of a thousand digits": b'{"team": "red", "score": %s}' % (b"7" * 1_000),
    "a number for a time": b'{"team": "red", "at": 1714564800000}',
    "a list": b"[1, 2]",
    "a number": b"5",
    "a text": b'"red"',
    "null": b"null",
    "null between objects": b"{} null {}",
    "null after an object": RED + b" null",
    "two objects": RED + b" " + BLUE,
    "an object and the beginning of another": RED + b'{"team"',
    "empty": b"",
    "only space": b" \t\r\n ",
    "not UTF-8": b'{"team": "\xff\xfe"}',
    "not UTF-8 in front": b"\xff\xfe" + RED,
    "half a pair of surrogates": b'{"team": "\\ud800"}',
    "a newline inside a text": b'{"team": "r\ned"}',
    "a zero byte": b'{"team": "red"\x00}',
    "a field twice": b'{"team": "red", "score": 1, "score": 2}',
    "a field twice over several lines": b'{"team": "red",\n"score": 1,\n"score": 2}',
    "a comma too many": b'{"team": "red",}',
    "a comment": b'{"team": "red" /* or blue */}',
    "single quotes": b"{'team': 'red'}",
    "nothing like JSON": b"\x00\x01\x02 hello",
    "a megabyte of nothing": b"x" * 1_000_000,
    "a megabyte never closed": b'{"x": ' + b"[" * 1_000_000,
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_record_is_a_dead_letter_and_its_neighbours_are_decoded(kind: str) -> None:
    decoded = decode(RED, BAD[kind], BLUE)
    assert decoded.rows.select(OFFSET, "team", "score").rows() == [(100, "red", 5), (102, "blue", 3)]
    ((partition, offset, kept, reason, detail),) = decoded.dead.rows()
    assert (partition, offset, kept, reason) == ("0", 101, BAD[kind], "undecodable")
    assert 0 < len(detail) < 500


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_record_alone_is_a_dead_letter(kind: str) -> None:
    decoded = decode(BAD[kind])
    assert decoded.rows.is_empty()
    assert decoded.dead[OFFSET].to_list() == [100]


def test_a_record_without_a_value_is_an_event_without_values() -> None:
    decoded = decode(None, RED, None)
    assert decoded.rows.select(OFFSET, "team").rows() == [(100, None), (101, "red"), (102, None)]
    assert decoded.dead.is_empty()


@pytest.mark.slow
def test_a_record_of_twenty_megabytes_is_a_dead_letter_unless_the_limit_allows_it() -> None:
    long = json.dumps({"team": "r" * 20_000_000}).encode()
    decoded = decode(RED, long, BLUE)
    assert decoded.rows["team"].to_list() == ["red", "blue"]
    assert decoded.dead[REASON].to_list() == ["too_large"]
    assert "at most 16777216 are read" in decoded.dead[DETAIL][0]
    decoded = decode(RED, long, BLUE, form=sl.json(SCORES.ddl, largest=2**25))
    assert [len(team) for team in decoded.rows["team"]] == [3, 20_000_000, 4]


@pytest.mark.parametrize("at", ["0000-01-01T00:00:00Z", "-0001-12-31T00:00:00Z"])
def test_a_time_outside_the_calendar_is_a_dead_letter(at: str) -> None:
    decoded = decode(RED, json.dumps({"team": "red", "at": at}).encode(), BLUE)
    assert decoded.rows[OFFSET].to_list() == [100, 102]
    assert "out of the range" in decoded.dead[DETAIL][0]


def test_the_last_year_of_the_calendar_is_read() -> None:
    decoded = decode(b'{"at": "9999-12-31T23:59:59.999999Z"}')
    assert decoded.rows["at"].to_list() == [datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]


def test_dates_decimals_floats_and_nested_values_are_decoded() -> None:
    form = sl.json("day date, cost decimal(10, 2), near float, all array<long>, at struct<x: double, y: double>")
    found = decode(
        b'{"day": "2024-05-01", "cost": 1.50, "near": 0.5, "all": [1, null], "at": {"x": 1, "y": 2, "z": 3}}',
        b'{"cost": 1.505}',
        b'{"near": 1e300}',
        b'{"all": [1, "two"]}',
        b'{"day": "0000-01-01"}',
        b'{"cost": "2.25"}',
        form=form,
    )
    assert found.rows.select(form.columns).rows() == [
        (date(2024, 5, 1), Decimal("1.50"), 0.5, [1, None], {"x": 1.0, "y": 2.0}),
        (None, Decimal("2.25"), None, None, None),
    ]
    assert found.dead[OFFSET].to_list() == [101, 102, 103, 104]


@pytest.mark.parametrize("ddl", ["m map<string, long>", "a array<date>", "s struct<m: map<string, long>>"])
def test_types_that_json_cannot_hold_are_refused_when_the_pipeline_is_built(ddl: str) -> None:
    with pytest.raises(InvalidStep, match="cannot be read from JSON"):
        sl.json(ddl)


def test_a_format_reports_its_types() -> None:
    assert SCORES.types == {"team": "string", "score": "long", "at": "timestamp"}
    assert sl.json("n bigint, d decimal(4, 1)").types == {"n": "long", "d": "decimal(4, 1)"}


def test_records_under_the_id_of_a_json_schema(fake: FakeRegistry) -> None:
    number, other = fake.add("scores-value", "{}", "JSON"), fake.add("else-value", '"long"')
    form = Json(SCORES.ddl, sl.registry(fake.url))
    framed = [each.to_bytes(5, "big") for each in (number, 99, other)]
    decoded = decode(framed[0] + RED, RED, framed[1] + RED, framed[2] + RED, b"\0\0", framed[0] + b"?", form=form)
    assert decoded.rows.select(OFFSET, "team", "score").rows() == [(100, "red", 5)]
    assert dict(decoded.dead.select(OFFSET, REASON).rows()) == {
        101: "undecodable",
        102: "unknown_schema",
        103: "incompatible_schema",
        104: "undecodable",
        105: "undecodable",
    }


@pytest.mark.slow
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "text": st.none() | st.text(),
                "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
                "real": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "truth": st.none() | st.booleans(),
                "at": st.none() | st.datetimes(timezones=st.just(UTC)),
                "day": st.none() | st.dates(),
                "cost": st.none() | st.decimals(-999, 999, places=2),
                "all": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
            }
        ),
        max_size=5,
    )
)
def test_json_values_survive_a_round_trip(rows: list[dict[str, Any]]) -> None:
    form = sl.json(
        "text string, whole long, real double, truth boolean, at timestamp, day date, cost decimal(9, 2),"
        "all array<long>"
    )
    frame = pl.DataFrame(rows, schema=decode(form=form).rows.select(form.columns).schema)
    decoded = decode(*form.encode(frame), form=form)
    assert decoded.dead.is_empty()
    assert decoded.rows.select(form.columns).rows() == frame.rows()


def test_bad_records_of_every_kind_are_dead_letters_in_their_order() -> None:
    decoded = decode(RED, *BAD.values(), BLUE)
    assert decoded.rows["team"].to_list() == ["red", "blue"]
    assert decoded.dead[RAW].to_list() == list(BAD.values())


def test_halves_of_one_object_in_two_records_are_two_dead_letters() -> None:
    """Joined they would be one object, and the third record would make up for the missing row."""
    decoded = decode(b'{"score": 1', b"}", b'{"score": 2} {"score": 3}', RED)
    assert decoded.rows.select(OFFSET, "score").rows() == [(103, 5)]
    assert decoded.dead[OFFSET].to_list() == [100, 101, 102]


def test_a_string_may_contain_json_syntax() -> None:
    content = "} null {} [] /* \\u0000 */"
    decoded = decode(json.dumps({"team": content}).encode())
    assert decoded.rows["team"].to_list() == [content]


def test_numbers_out_of_range_of_their_own_type_are_refused() -> None:
    decoded = decode(b'{"narrow": 2147483648}', b'{"real": 1e999}', b'{"truth": 1}', b'{"narrow": 7}', form=WIDE)
    assert decoded.rows.select(OFFSET, "narrow").rows() == [(103, 7)]


def test_a_record_of_a_megabyte_is_read_like_any_other() -> None:
    long = json.dumps({"team": "r" * 1_000_000, "score": 1}).encode()
    decoded = decode(RED, long, BLUE)
    assert [len(team) for team in decoded.rows["team"]] == [3, 1_000_000, 4]


def test_deep_nesting_in_an_ignored_field_is_skipped() -> None:
    """Also over several lines: neither code path may exceed the stack."""
    for space in (b"", b"\n"):
        deep = b'{"x":' + space + b"[" * 100_000 + b"]" * 100_000 + b', "team": "red"}'
        assert decode(deep, BLUE).rows["team"].to_list() == ["red", "blue"]


def test_more_records_than_the_parser_takes_at_once() -> None:
    values: list[bytes | None] = [b'{"score": %d}' % number for number in range(120_000)]
    values[60_000] = b"?"
    decoded = decode(*values)
    assert decoded.rows["score"].sum() == sum(range(120_000)) - 60_000
    assert decoded.dead[OFFSET].to_list() == [60_100]


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
TIMES: dict[str, datetime | None] = {
    "2024-05-01T12:00:00Z": NOON,
    "2024-05-01T12:00:00.000Z": NOON,
    "2024-05-01T12:00:00.123456Z": NOON.replace(microsecond=123456),
    "2024-05-01T12:00:00.1234567Z": NOON.replace(microsecond=123456),
    "2024-05-01T14:00:00+02:00": NOON,
    "2024-05-01T14:00:00+0200": NOON,
    "2024-05-01 12:00:00Z": NOON,
    "2024-05-01T12:00:00": NOON,
    "2024-05-01 12:00:00": NOON,
    "2024-05-01 12:00:00.5": NOON.replace(microsecond=500_000),
    "2024-05-01T12:00Z": NOON,
    "2024-05-01": NOON.replace(hour=0),
    "1969-12-31T23:59:59.999999Z": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "half past nine": None,
    "": None,
    "2024-02-30T12:00:00Z": None,
    "2024-05-01T25:00:00Z": None,
    "01/05/2024": None,
    "1714564800": None,
}


@given(st.permutations(sorted(TIMES)))
@example(sorted(TIMES))
def test_a_time_is_read_the_same_whatever_its_neighbours(texts: list[str]) -> None:
    decoded = decode(*(json.dumps({"at": text}).encode() for text in texts))
    assert decoded.rows["at"].to_list() == [TIMES[text] for text in texts]
    assert decoded.dead.is_empty()


scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner))
objects = st.dictionaries(st.sampled_from(["text", "whole", "narrow", "real", "truth", "else"]), values, max_size=4)
tokens = st.sampled_from([*'{}[],:" \n\0\\', '"whole"', '"text"', "1", "-1", "1.5", "null", "true", "NaN"])
records = st.one_of(
    st.none(),
    st.binary(max_size=12),
    objects.map(lambda value: json.dumps(value).encode()),
    objects.map(lambda value: json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.lists(tokens, max_size=10).map(lambda found: "".join(found).encode()),
    st.lists(tokens, max_size=10).map(lambda found: ("{" + "".join(found) + "}").encode()),
)


@given(st.lists(records, max_size=6))
@example([b"null"])
@example([b"{}null{}"])
@example([b'{"whole":1', b"}", b"{}{}"])
def test_any_bytes_are_a_row_or_a_dead_letter_and_rows_agree_with_the_json_module(found: list[bytes | None]) -> None:
    decoded = decode(*found, form=WIDE)
    places = [offset - 100 for offset in (*decoded.rows[OFFSET], *decoded.dead[OFFSET])]
    assert sorted(places) == list(range(len(found)))
    for row in decoded.rows.iter_rows(named=True):
        record = found[row[OFFSET] - 100]
        meant = {} if record is None else json.loads(record)
        assert isinstance(meant, dict)
        for name in WIDE.columns:
            assert _same(row[name], meant.get(name)), (record, name)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def test_a_format_with_invalid_columns_is_refused_when_the_pipeline_is_built() -> None:
    with pytest.raises(InvalidStep, match="cannot read the column 'team text'"):
        sl.json("team text")


def test_a_format_reports_its_columns() -> None:
    assert SCORES.columns == ("team", "score", "at")
