"""Avro: round trips of every type, schema changes within a stream, and single bad records."""

import io
import json
import pickle
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.errors import InvalidSchema, RegistryDown, SchemaNotFound, SinkError
from strandline.formats.avro import row_readers
from strandline.formats.avro.codec import Avro
from strandline.formats.avro.columns import is_columnar
from strandline.formats.avro.schema import parse_avro, record_of
from strandline.formats.registry.confluent_wire import framed
from strandline.kernel.blocks.block import OFFSET
from strandline.ports.codecs import DETAIL, RAW, REASON
from tests.formats.batches import raw
from tests.formats.registries import FakeRegistry, reply

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME = {"type": "long", "logicalType": "timestamp-millis"}
SCORE = {
    "type": "record",
    "name": "Score",
    "fields": [
        {"name": "team", "type": "string"},
        {"name": "score", "type": ["null", "long"]},
        {"name": "at", "type": TIME},
    ],
}
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def record(*fields: dict[str, Any], name: str = "Score") -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields})


def written(schema: str | dict[str, Any], *rows: dict[str, Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else json.loads(json.dumps(schema)))
    found = []
    for row in rows:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, parsed, row)
        found.append(file.getvalue())
    return found


RED, BLUE = written(SCORE, {"team": "red", "score": 5, "at": NOON}, {"team": "blue", "score": None, "at": NOON})
FORM = sl.avro(json.dumps(SCORE))


def test_records_become_columns() -> None:
    decoded = FORM.decode(raw([RED, BLUE]))
    assert decoded.rows.select(OFFSET, RAW, *FORM.columns).rows() == [
        (100, RED, "red", 5, NOON),
        (101, BLUE, "blue", None, NOON),
    ]
    assert decoded.dead.is_empty()
    assert FORM.types == {"team": "string", "score": "long", "at": "timestamp"}


def test_empty_frames_have_their_columns() -> None:
    for values in ([], [RED], [b"?"]):
        decoded = FORM.decode(raw(values))
        assert dict(decoded.rows.select(FORM.columns).schema) == {
            "team": pl.String,
            "score": pl.Int64,
            "at": pl.Datetime("us", "UTC"),
        }
        assert decoded.dead.columns[-2:] == [REASON, DETAIL]


def test_a_record_without_a_value_is_an_event_without_values() -> None:
    decoded = FORM.decode(raw([RED, None, BLUE]))
    assert decoded.rows["team"].to_list() == ["red", None, "blue"]


def varint(number: int) -> bytes:
    found = bytearray()
    number = number << 1 ^ number >> 63
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


BAD = {
    "empty": b"",
    "trailing bytes": RED + b"\0",
    "a union branch that is not there": b"\x06red\x04\x0a\0",
    "a negative union branch": b"\x06red\x01\x0a\0",
    "a text that is not UTF-8": b"\x04\xff\xfe\0\0",
    "a length below zero": b"\x05red\0\0",
    "a length beyond the record": b"\x7ered\0\0",
    "a length beyond memory": varint(2**62) + RED[1:],
    "a number without an end": b"\x06red\x02" + b"\xff" * 12,
    "a number of more than 64 bits": b"\x06red\x02" + b"\xff" * 9 + b"\x7f\0",
    "a time in year 0": b"\x06red\0" + varint(-62_135_596_800_001),
    "a time in year 10000": b"\x06red\0" + varint(253_402_300_800_000),
    "a time at the end of all numbers": b"\x06red\0" + varint(2**63 - 1),
    "JSON": b'{"team": "red", "score": 1}',
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("columnar", [True, False], ids=["in columns", "in rows"])
def test_a_bad_record_is_a_dead_letter_and_its_neighbours_are_decoded(kind: str, columnar: bool) -> None:
    form = FORM
    tail = b""
    if not columnar:
        extended = json.loads(json.dumps(SCORE))
        extended["fields"].append({"name": "more", "type": {"type": "array", "items": "int"}})
        form, tail = sl.avro(json.dumps(extended)), b"\0"
    bad = BAD[kind] + tail
    decoded = form.decode(raw([RED + tail, bad, BLUE + tail]))
    assert decoded.rows.select(OFFSET, "team").rows() == [(100, "red"), (102, "blue")]
    assert decoded.dead.select(OFFSET, RAW, REASON).rows() == [(101, bad, "undecodable")]
    assert 0 < len(decoded.dead[DETAIL][0]) <= 400


def test_a_record_cut_anywhere_is_a_dead_letter() -> None:
    cut = [RED[:end] for end in range(len(RED))]
    decoded = FORM.decode(raw([RED, *cut, BLUE]))
    assert decoded.rows["team"].to_list() == ["red", "blue"]
    assert decoded.dead.height == len(RED)


@pytest.mark.slow
def test_a_record_of_twenty_megabytes_is_a_dead_letter_unless_the_limit_allows_it() -> None:
    (long,) = written(SCORE, {"team": "r" * 20_000_000, "score": 1, "at": NOON})
    decoded = FORM.decode(raw([RED, long, BLUE]))
    assert decoded.dead[REASON].to_list() == ["too_large"]
    assert decoded.rows["team"].to_list() == ["red", "blue"]
    decoded = sl.avro(json.dumps(SCORE), largest=2**25).decode(raw([RED, long, BLUE]))
    assert decoded.rows["team"].str.len_bytes().to_list() == [3, 20_000_000, 4]


def test_the_first_and_the_last_moment_of_the_calendar_are_read() -> None:
    ends = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)]
    values = written(SCORE, *({"team": "red", "score": 1, "at": at} for at in ends))
    assert FORM.decode(raw(values)).rows["at"].to_list() == ends


@given(st.lists(st.binary(max_size=24), max_size=6))
def test_any_bytes_are_a_row_or_a_dead_letter(values: list[bytes]) -> None:
    decoded = FORM.decode(raw(values))
    assert sorted([*decoded.rows[OFFSET], *decoded.dead[OFFSET]]) == [100 + place for place in range(len(values))]
    for row in decoded.rows.iter_rows(named=True):
        file = io.BytesIO(row[RAW])
        found = fastavro.schemaless_reader(file, SCORE, None)
        assert found == {name: row[name] for name in FORM.columns}
        assert file.tell() == len(row[RAW])


names = st.integers(0, 10**9).map(lambda number: f"n{number}")
instants = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=8)),
    ("string", st.text(max_size=8)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    (TIME, instants.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))),
    ({"type": "long", "logicalType": "timestamp-micros"}, instants),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 5},
        st.decimals(-(10**24), 10**24, places=5),
    ),
    ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
]


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """An Avro type, and values of it as a column holds them."""
    kind = draw(st.integers(0, 8 if depth else 3))
    if kind <= 3:
        leaf, its = draw(st.sampled_from(LEAVES))
        return leaf, its
    name = draw(names)
    if kind == 4:
        symbols = [f"{name}_{place}" for place in range(draw(st.integers(1, 3)))]
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == 5:
        size = draw(st.integers(1, 6))
        return {"type": "fixed", "name": name, "size": size}, st.binary(min_size=size, max_size=size)
    inner, values = draw(types(depth=depth - 1))
    if kind == 6:
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == 7:
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3)
    if isinstance(inner, dict) and draw(st.booleans()):
        return ["null", inner], st.none() | values
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": ["null", "long"]}]
    row = st.fixed_dictionaries({"a": values, "b": st.none() | st.integers(-9, 9)})
    return {"type": "record", "name": name, "fields": fields}, row


@given(st.data())
def test_avro_values_survive_a_round_trip(data: st.DataObject) -> None:
    picked = data.draw(st.lists(types(), min_size=1, max_size=4))
    schema = record(*({"name": f"c{place}", "type": kind} for place, (kind, _) in enumerate(picked)), name="Root")
    try:
        form = sl.avro(schema)
    except InvalidSchema:  # two types drew the same name
        return
    shape = form.decode(raw([])).rows.select(form.columns).schema
    row = st.fixed_dictionaries({f"c{place}": values for place, (_, values) in enumerate(picked)})
    frame = pl.DataFrame(data.draw(st.lists(row, max_size=4)), schema=shape)
    decoded = form.decode(raw(list(form.encode(frame))))
    assert decoded.dead.is_empty()
    assert decoded.rows.select(form.columns).rows() == frame.rows()


@given(st.data())
def test_column_and_row_readers_decode_the_same_values(data: st.DataObject) -> None:
    picked = data.draw(st.lists(types(), min_size=1, max_size=4))
    schema = record(*({"name": f"c{place}", "type": kind} for place, (kind, _) in enumerate(picked)), name="Root")
    try:
        form = sl.avro(schema)
    except InvalidSchema:
        return
    writer = parse_avro(schema)
    if not is_columnar(writer):
        return
    values = data.draw(st.lists(st.binary(max_size=20), max_size=5))
    decoded = form.decode(raw(values))
    found, wrong = row_readers.read_rows(values, record_of(writer), record_of(writer))
    assert decoded.dead[OFFSET].to_list() == [100 + place for place in sorted(wrong)]
    kept = [row for place, row in enumerate(found.iter_rows()) if place not in wrong]
    assert repr(decoded.rows.select(form.columns).rows()) == repr(kept)


def test_a_union_of_several_types_is_read_as_the_readers_type() -> None:
    many = record({"name": "x", "type": ["null", "int", "long", "float"]})
    values = written(many, {"x": None}, {"x": 1}, {"x": 2**40}, {"x": 0.5})
    with pytest.raises(InvalidSchema, match="the field x is a union of several types"):
        sl.avro(many)
    reader = Avro(record({"name": "x", "type": ["null", "double"]}))
    decoded = _read_with(reader, many, values)
    assert decoded == [None, 1.0, float(2**40), 0.5]


def _read_with(reader: Avro, writer: str, values: list[bytes]) -> list[Any]:
    from tests.formats.registries import serving  # noqa: PLC0415

    with serving() as fake:
        number = fake.add("x-value", writer)
        form = Avro(reader.schema, sl.registry(fake.url))
        decoded = form.decode(raw([framed(number, each) for each in values]))
    assert decoded.dead.is_empty(), decoded.dead[DETAIL].to_list()
    rows = decoded.rows.select(form.columns).rows()
    return [row[0] for row in rows] if len(form.columns) == 1 else rows


FIELD = {"name": "n", "type": "int"}
EVOLVED = [
    ("a field with a default", record(FIELD), record(FIELD, {"name": "m", "type": "string", "default": "none"})),
    ("a field removed", record(FIELD, {"name": "m", "type": "string"}), record(FIELD)),
    ("a field renamed", record({"name": "old", "type": "int"}), record({**FIELD, "aliases": ["old"]})),
    ("an int that became a long", record(FIELD), record({"name": "n", "type": "long"})),
    ("an int that became a double", record(FIELD), record({"name": "n", "type": "double"})),
    ("a field that became optional", record(FIELD), record({"name": "n", "type": ["null", "int"]})),
    ("fields in another order", record({"name": "m", "type": "string"}, FIELD), record(FIELD)),
]
ROW = {"n": 7, "old": 7, "m": "text"}


@pytest.mark.parametrize(("writer", "reader"), [each[1:] for each in EVOLVED], ids=[each[0] for each in EVOLVED])
def test_a_reader_reads_records_of_older_schemas(writer: str, reader: str) -> None:
    found = _read_with(Avro(reader), writer, written(writer, ROW))
    assert found in ([7], [(7, "none")])


def test_defaults_of_every_kind_are_read() -> None:
    fields: list[dict[str, Any]] = [
        {"name": "b", "type": "bytes", "default": "\u00ff"},
        {"name": "t", "type": TIME, "default": 1000},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "default": "B"},
        {"name": "a", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
        {"name": "m", "type": {"type": "map", "values": "int"}, "default": {"k": 1}},
        {
            "name": "r",
            "type": {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int", "default": 5}]},
            "default": {},
        },
        {
            "name": "d",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "default": "\u0001",
        },
    ]
    writer = record(FIELD)
    (row,) = _read_with(Avro(record(FIELD, *fields)), writer, written(writer, ROW))
    second = EPOCH + timedelta(seconds=1)
    assert row == (7, b"\xff", second, "B", [1, 2], {"k": 1}, {"x": 5}, Decimal("0.01"))


def test_an_unknown_symbol_is_read_as_the_enums_default() -> None:
    def enum(symbols: list[str], **more: Any) -> str:
        return record({"name": "e", "type": {"type": "enum", "name": "E", "symbols": symbols, **more}})

    writer = enum(["A", "B", "C"])
    values = written(writer, *({"e": each} for each in "ABC"))
    assert _read_with(Avro(enum(["A", "Z"], default="Z")), writer, values) == ["A", "Z", "Z"]


def test_ddl_reads_every_avro_type_that_it_can_express(fake: FakeRegistry) -> None:
    writer = record(
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "in", "type": {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}},
    )
    row = {"kind": "B", "mark": b"ok", "cost": Decimal("1.25"), "at": NOON, "day": date(2024, 5, 1), "in": {"x": 1}}
    number = fake.add("x-value", writer)
    ddl = "day date, kind string, mark binary, cost decimal(8, 3), at timestamp, in struct<x: long, y: string>, new int"
    form = sl.avro(ddl, registry=sl.registry(fake.url))
    decoded = form.decode(raw([framed(number, each) for each in written(writer, row)]))
    assert decoded.rows.select(form.columns).rows() == [
        (date(2024, 5, 1), "B", b"ok", Decimal("1.250"), NOON, {"x": 1, "y": None}, None)
    ]


def test_a_new_writers_schema_in_mid_stream_is_read_without_a_restart(fake: FakeRegistry) -> None:
    old = record(FIELD)
    new = record({"name": "m", "type": "string"}, FIELD)
    form = sl.avro(record({"name": "n", "type": "long"}), registry=sl.registry(fake.url))
    first = framed(fake.add("x-value", old), written(old, {"n": 1})[0])
    assert form.decode(raw([first])).rows["n"].to_list() == [1]
    second = framed(fake.add("x-value", new), written(new, {"n": 2, "m": "text"})[0])
    decoded = form.decode(raw([second, first, second]))
    assert decoded.rows["n"].to_list() == [2, 1, 2]
    assert decoded.rows[OFFSET].to_list() == [100, 101, 102]


def test_an_incompatible_schema_goes_to_dead_letters_with_both_ids(fake: FakeRegistry) -> None:
    good, bad = record(FIELD), record({"name": "n", "type": "string"})
    fine, wrong = fake.add("n-value", good), fake.add("other-value", bad)
    form = sl.avro(registry=sl.registry(fake.url), subject="n-value")
    values = [framed(fine, written(good, {"n": 1})[0]), framed(wrong, written(bad, {"n": "one"})[0])]
    decoded = form.decode(raw([*values, values[0]]))
    assert decoded.rows["n"].to_list() == [1, 1]
    assert decoded.dead[REASON].to_list() == ["incompatible_schema"]
    assert decoded.dead[DETAIL][0].startswith(
        f"schema {wrong} cannot be read with schema {fine}: n: string was written"
    )


def test_a_schema_in_another_language_is_incompatible(fake: FakeRegistry) -> None:
    number = fake.add("x-value", "{}", "JSON")
    form = sl.avro(record(FIELD), registry=sl.registry(fake.url))
    decoded = form.decode(raw([framed(number, b"{}")]))
    assert decoded.dead[REASON].to_list() == ["incompatible_schema"]


@pytest.mark.parametrize("text", ["{", '"string"', '{"type": "record", "name": "R", "fields": [{"name": "n"}]}'])
def test_a_broken_schema_in_the_registry_is_incompatible(fake: FakeRegistry, text: str) -> None:
    number = fake.add("x-value", text)
    decoded = sl.avro(record(FIELD), registry=sl.registry(fake.url)).decode(raw([framed(number, b"\0")]))
    assert decoded.dead[REASON].to_list() == ["incompatible_schema"]


def test_wrong_frames_and_unknown_ids_are_dead_letters_on_their_own(fake: FakeRegistry) -> None:
    number = fake.add("x-value", record(FIELD))
    good = framed(number, written(record(FIELD), {"n": 3})[0])
    form = sl.avro(record(FIELD), registry=sl.registry(fake.url))
    decoded = form.decode(raw([good, b"\x01" + good[1:], b"\0\0\0", framed(999, good[5:]), good, None, b""]))
    assert decoded.rows.select(OFFSET, "n").rows() == [(100, 3), (104, 3), (105, None)]
    assert decoded.dead.select(OFFSET, REASON, DETAIL).rows() == [
        (101, "undecodable", "the first byte is 1, not 0: no schema's id follows"),
        (102, "undecodable", "3 bytes are too few for a schema's id"),
        (103, "unknown_schema", "the registry has no schema 999"),
        (106, "undecodable", "0 bytes are too few for a schema's id"),
    ]


def test_a_registry_that_is_down_blocks_the_batch_but_cached_schemas_stay_usable(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = fake.add("x-value", record(FIELD))
    good = framed(number, written(record(FIELD), {"n": 3})[0])
    ours = sl.registry(fake.url)
    monkeypatch.setattr(ours.client(), "sleep", fake.pauses.append)
    form = sl.avro(record(FIELD), registry=ours)
    fake.faults = [lambda handler: reply(handler, 500)] * 6
    with pytest.raises(RegistryDown, match="does not respond"):
        form.decode(raw([good]))
    assert form.decode(raw([good])).rows["n"].to_list() == [3]
    fake.faults = [lambda handler: reply(handler, 500)] * 100
    assert form.decode(raw([good])).rows["n"].to_list() == [3]


def test_types_of_another_schema_are_found_by_their_name(fake: FakeRegistry) -> None:
    money = record({"name": "cents", "type": "long"}, name="shop.Money")
    fake.add("money", money)
    order = record({"name": "price", "type": "shop.Money"}, name="shop.Order")
    number = fake.add("order-value", order, references=[{"name": "shop.Money", "subject": "money", "version": 1}])
    form = sl.avro(registry=sl.registry(fake.url), subject="order-value")
    assert form.types == {"price": "struct<cents: long>"}
    decoded = form.decode(raw([framed(number, varint(250))]))
    assert decoded.rows["price"].to_list() == [{"cents": 250}]


def test_the_latest_schema_is_pinned_when_the_pipeline_is_written(fake: FakeRegistry) -> None:
    number = fake.add("x-value", record(FIELD))
    form = sl.avro(registry=sl.registry(fake.url), subject="x-value")
    fake.add("x-value", record({"name": "other", "type": "string"}))
    assert (form.number, form.columns) == (number, ("n",))
    assert pickle.loads(pickle.dumps(form)) == form


def test_encoded_records_carry_the_schema_id_of_the_registry(fake: FakeRegistry) -> None:
    schema = record(FIELD)
    form = sl.avro(schema, registry=sl.registry(fake.url), subject="x-value")
    rows = pl.DataFrame({"n": [1, 2]}, schema={"n": pl.Int32})
    with pytest.raises(SchemaNotFound):
        form.encode(rows)
    number = fake.add("x-value", schema)
    values = list(form.encode(rows))
    assert values[0][:5] == bytes([0, 0, 0, 0, number])
    assert form.decode(raw(values)).rows["n"].to_list() == [1, 2]


def test_a_row_that_does_not_fit_its_schema_is_refused() -> None:
    with pytest.raises(SinkError, match="does not fit its Avro schema"):
        sl.avro(record(FIELD)).encode(pl.DataFrame({"n": [None]}, schema={"n": pl.Int32}))


def test_records_with_a_ddl_schema_survive_a_round_trip() -> None:
    form = sl.avro("team string, n long, at timestamp, tags array<string>, by map<string, double>")
    rows = [("red", 1, NOON, ["a", None], {"k": 0.5}), (None,) * 5]
    shape = form.decode(raw([])).rows.select(form.columns).schema
    frame = pl.DataFrame([dict(zip(shape, row, strict=True)) for row in rows], schema=shape)
    assert form.decode(raw(list(form.encode(frame)))).rows.select(form.columns).rows() == rows


BROKEN = [
    ("not JSON", "{", "not JSON"),
    ("not a record", '"long"', "not a record"),
    ("a name that is not defined", record({"name": "x", "type": "Nothing"}), "does not define"),
    ("a field without a type", '{"type": "record", "name": "R", "fields": [{"name": "n"}]}', "without its type"),
    ("a record without fields", '{"type": "record", "name": "R"}', "without its fields"),
    ("two fields of a name", record(FIELD, FIELD), "two fields"),
    ("a record that contains itself", record({"name": "x", "type": ["null", "Score"]}), "contains itself"),
    ("a union of unions", record({"name": "x", "type": ["null", ["null", "int"]]}), "holds a union"),
    ("a name twice", record({"name": "x", "type": {"type": "fixed", "name": "Score", "size": 1}}), "defines"),
    (
        "an enum default that is none",
        record({"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}}),
        "not one of its symbols",
    ),
    ("nested without an end", "[" * 80 + "]" * 80, "nested more than"),
    ("nested beyond the parser", "[" * 100_000, "not JSON"),
]


@pytest.mark.parametrize(("text", "reason"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN])
def test_an_invalid_schema_is_refused_when_the_pipeline_is_built(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        sl.avro(text)


def test_an_array_of_zero_size_values_is_refused() -> None:
    form = sl.avro(record({"name": "x", "type": {"type": "array", "items": "null"}}))
    decoded = form.decode(raw([varint(2**40) + b"\0"]))
    assert decoded.dead[REASON].to_list() == ["incompatible_schema"]


def test_a_format_without_a_schema_or_registry_is_refused(fake: FakeRegistry) -> None:
    with pytest.raises(InvalidSchema, match="without a schema"):
        sl.avro()
    with pytest.raises(InvalidSchema, match="needs its subject"):
        sl.avro(registry=sl.registry(fake.url))


def test_a_record_of_nested_empty_arrays_costs_bounded_work_and_is_a_dead_letter() -> None:
    nested = {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": "int"}}}
    form = sl.avro(record({"name": "a", "type": nested}))
    many = 10_000_000
    before = time.process_time()
    decoded = form.decode(raw([varint(many) + bytes(many) + b"\0", b"\2\2\0\0\0"]))
    assert time.process_time() - before < 15  # it took a minute and more
    assert decoded.rows["a"].to_list() == [[[[]]]]
    assert decoded.dead.height == 1
    assert "250,000 arrays" in decoded.dead[DETAIL][0]
