"""Protobuf: schemas as text, messages as columns, and single bad messages."""

import base64
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.errors import InvalidSchema, RegistryDown, SinkError
from strandline.formats.protobuf.codec import read_index, write_index
from strandline.formats.protobuf.messages import class_of, message_of
from strandline.formats.protobuf.proto_text import parse_proto
from strandline.formats.registry.confluent_wire import framed
from strandline.kernel.blocks.block import OFFSET
from strandline.ports.codecs import DETAIL, REASON
from tests.formats.batches import raw
from tests.formats.registries import FakeRegistry, reply

SCORE = """
// A score of a team.
syntax = "proto3";
package games;
import "google/protobuf/timestamp.proto";

message Score {
  string team = 1;
  int64 score = 2;
  google.protobuf.Timestamp at = 3;
}
"""
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FORM = sl.protobuf(SCORE)


def score(**values: Any) -> bytes:
    message = class_of(message_of(SCORE, (), None))(**{"team": "red", "score": 5, "at": NOON, **values})
    return message.SerializeToString()


def at_second(second: int) -> bytes:
    message: Any = class_of(message_of(SCORE, (), None))()
    message.at.seconds = second
    return bytes(message.SerializeToString())


RED, BLUE = score(), score(team="blue", score=3)


def test_messages_become_columns() -> None:
    decoded = FORM.decode(raw([RED, BLUE, b"", None]))
    assert decoded.rows.select(OFFSET, *FORM.columns).rows() == [
        (100, "red", 5, NOON),
        (101, "blue", 3, NOON),
        (102, "", 0, None),
        (103, None, None, None),
    ]
    assert FORM.types == {"team": "string", "score": "long", "at": "timestamp"}


BAD = {
    "truncated": RED[:-1],
    "a text that is not UTF-8": b"\x0a\x02\xff\xfe",
    "a length beyond the record": b"\x0a\x7fred",
    "field number zero": b"\x00\x01",
    "a wire type that does not exist": b"\x0f",
    "a time in year 0": at_second(-62_135_596_801),
    "a time in year 10000": at_second(253_402_300_800),
    "nothing like a message": b'{"team": "red"}',
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_message_is_a_dead_letter_and_its_neighbours_are_decoded(kind: str) -> None:
    decoded = FORM.decode(raw([RED, BAD[kind], BLUE]))
    assert decoded.rows.select(OFFSET, "team").rows() == [(100, "red"), (102, "blue")]
    assert decoded.dead.select(OFFSET, REASON).rows() == [(101, "undecodable")]
    assert decoded.dead[DETAIL][0]


def test_a_number_out_of_range_is_a_dead_letter() -> None:
    form = sl.protobuf('syntax = "proto3"; message M { uint64 n = 1; }')
    make = class_of(message_of(form.schema, (), None))
    values = [make(n=n).SerializeToString() for n in (1, 2**63, 2**63 - 1)]
    decoded = form.decode(raw(values))
    assert decoded.rows["n"].to_list() == [1, 2**63 - 1]
    assert "out of the range" in decoded.dead[DETAIL][0]


def test_a_message_of_twenty_megabytes_is_a_dead_letter_unless_the_limit_allows_it() -> None:
    long = score(team="r" * 20_000_000)
    assert FORM.decode(raw([RED, long])).dead[REASON].to_list() == ["too_large"]
    assert sl.protobuf(SCORE, largest=2**25).decode(raw([RED, long])).rows.height == 2


@given(st.lists(st.binary(max_size=24), max_size=6))
def test_any_bytes_are_a_row_or_a_dead_letter(values: list[bytes]) -> None:
    decoded = FORM.decode(raw(values))
    assert sorted([*decoded.rows[OFFSET], *decoded.dead[OFFSET]]) == [100 + place for place in range(len(values))]


EVERYTHING = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Everything {
  enum Colour { option allow_alias = true; NONE = 0; RED = 1; BLUE = 2; ROT = 1; }
  message Inner { int32 x = 1; repeated string tags = 2; }
  int32 a = 1; sint64 b = 2; fixed32 c = 3; sfixed64 d = 4; uint32 e = 5; uint64 f = 6;
  float g = 7; double h = 8; bool i = 9; string j = 10; bytes k = 11;
  optional int64 l = 12;
  Colour m = 13;
  Inner n = 14;
  repeated int32 o = 15 [packed = true];
  map<string, int64> p = 16;
  oneof choice { string q = 17; int32 r = 18; }
  google.protobuf.Timestamp s = 19;
  google.protobuf.StringValue t = 20 [deprecated = true, (custom).thing = { a: "]" }];
  map<int32, Inner> u = 21;
  repeated Inner v = 22;
  reserved 100 to 110, 200; reserved "old", 'older';
}
"""
instants = st.datetimes(timezones=st.just(UTC))
inner = st.fixed_dictionaries({"x": st.integers(-9, 9), "tags": st.lists(st.text(max_size=3), max_size=2)})
row = st.fixed_dictionaries(
    {
        "a": st.integers(-(2**31), 2**31 - 1),
        "b": st.integers(-(2**63), 2**63 - 1),
        "c": st.integers(0, 2**32 - 1),
        "d": st.integers(-(2**63), 2**63 - 1),
        "e": st.integers(0, 2**32 - 1),
        "f": st.integers(0, 2**63 - 1),
        "g": st.floats(width=32, allow_nan=False),
        "h": st.floats(allow_nan=False),
        "i": st.booleans(),
        "j": st.text(max_size=5),
        "k": st.binary(max_size=5),
        "l": st.none() | st.integers(-9, 9),
        "m": st.sampled_from(["NONE", "BLUE", "7"]),
        "n": st.none() | inner,
        "o": st.lists(st.integers(-9, 9), max_size=3),
        "p": st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=2),
        "q": st.none() | st.text(max_size=3),
        "r": st.none(),
        "s": st.none() | instants,
        "t": st.none() | st.text(max_size=3),
        "u": st.dictionaries(st.integers(-9, 9).map(str), inner, max_size=2),
        "v": st.lists(inner, max_size=2),
    }
)


@given(st.lists(row, max_size=4))
def test_protobuf_values_survive_a_round_trip(rows: list[dict[str, Any]]) -> None:
    form = sl.protobuf(EVERYTHING)
    frame = pl.DataFrame(rows, schema=form.decode(raw([])).rows.select(form.columns).schema)
    decoded = form.decode(raw(list(form.encode(frame))))
    assert decoded.dead.is_empty()
    for found, meant in zip(decoded.rows.select(form.columns).to_dicts(), frame.to_dicts(), strict=True):
        assert found == meant


def test_a_row_that_does_not_fit_its_message_is_refused() -> None:
    with pytest.raises(SinkError, match="does not fit its message"):
        FORM.encode(pl.DataFrame({"team": ["red"], "score": ["many"], "at": [None]}))


def test_the_message_is_chosen_by_its_name() -> None:
    text = (
        'syntax = "proto3"; package p; message A { int32 a = 1; message B { int32 b = 1; } } message C { int32 c = 1; }'
    )
    assert sl.protobuf(text).columns == ("a",)
    assert sl.protobuf(text, message="A.B").columns == ("b",)
    assert sl.protobuf(text, message="p.C").columns == ("c",)
    with pytest.raises(InvalidSchema, match="no message 'D'"):
        sl.protobuf(text, message="D")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no message"),
        ("message", "ends too early"),
        ("message M { int32 = 1; }", "cannot read the .proto"),
        ("message M { int32 x = one; }", "cannot read the .proto at 'one'"),
        ("message M { Nothing x = 1; }", "is inconsistent"),
        ('import "nowhere.proto"; message M { }', "is inconsistent"),
        ('syntax = "proto4";', "use proto2 or proto3"),
        ('edition = "2023";', "an edition"),
        ("message M { optional group G = 1 { } }", "group"),
        ("message M { M m = 1; }", "contains itself"),
        ("message M { reserved 1; int32 x = 1; }", "is reserved"),
        ('message M { reserved "x"; int32 x = 1; }', "is reserved"),
        ("message M { int32 a = 1; int32 b = 1; }", "is inconsistent"),
        ("§", "cannot read the .proto"),
        ("message M {" * 40, "nested more than"),
        ("x" * 2**21, "characters"),
    ],
)
def test_an_invalid_schema_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        sl.protobuf(text)


def test_options_and_services_of_a_proto_file_are_ignored() -> None:
    text = """
    /* proto2, with everything around it */
    syntax = "proto2"; package p; option java_package = "x"; import public "google/protobuf/any.proto";
    message M { required int32 x = 1 [default = -5]; extensions 100 to max; option deprecated = true; ; }
    extend M { optional int32 y = 100; }
    service S { rpc Get (M) returns (stream M) { option (google.api.http) = { get: "/v1" }; } }
    """
    parsed = parse_proto(text)
    assert parsed.message_type[0].field[0].default_value == "-5"
    assert sl.protobuf(text).columns == ("x",)


def test_a_schema_as_a_descriptor_in_base64() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3")
    file.message_type.add(name="M").field.add(name="x", number=1, type=5, label=1)
    assert sl.protobuf(base64.b64encode(file.SerializeToString()).decode()).columns == ("x",)


@pytest.mark.parametrize(
    ("index", "written"), [((0,), b"\0"), ((1,), b"\x02\x02"), ((0, 0), b"\x04\0\0"), ((70, 3), b"\x04\x8c\x01\x06")]
)
def test_a_messages_index_is_written_as_the_wire_format_says(index: tuple[int, ...], written: bytes) -> None:
    assert write_index(index) == written
    assert read_index(written + b"rest", 0) == (index, len(written))
    assert read_index(b"\x02\0", 0) == ((0,), 2)


def test_messages_under_a_registrys_id(fake: FakeRegistry) -> None:
    number = fake.add("scores-value", SCORE, "PROTOBUF")
    form = sl.protobuf(registry=sl.registry(fake.url), subject="scores-value")
    values = [framed(number, b"\0" + RED), b"\x01" + RED, framed(99, b"\0" + RED), framed(number, b"\x08\0"), b"\0"]
    decoded = form.decode(raw([*values, None]))
    assert decoded.rows.select(OFFSET, "team").rows() == [(100, "red"), (105, None)]
    assert dict(decoded.dead.select(OFFSET, REASON).rows()) == {
        101: "undecodable",
        102: "unknown_schema",
        103: "undecodable",
        104: "undecodable",
    }
    frame = form.decode(raw([values[0]])).rows.select(form.columns)
    assert form.encode(frame).to_list() == [values[0]]


def test_a_registry_that_is_down_blocks_the_batch(fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = sl.registry(fake.url)
    monkeypatch.setattr(ours.client(), "sleep", fake.pauses.append)
    number = fake.add("scores-value", SCORE, "PROTOBUF")
    fake.faults = [lambda handler: reply(handler, 503)] * 6
    form = sl.protobuf(SCORE, registry=ours)
    with pytest.raises(RegistryDown):
        form.decode(raw([framed(number, b"\0" + RED)]))
    assert form.decode(raw([framed(number, b"\0" + RED)])).rows.height == 1


def test_a_new_writers_schema_in_mid_stream(fake: FakeRegistry) -> None:
    def schema(fields: str) -> str:
        return f'syntax = "proto3"; message Score {{ {fields} }}'

    form = sl.protobuf(schema("string team = 1; int64 n = 2;"), registry=sl.registry(fake.url))
    wider = fake.add("x-value", schema("string name = 1; int32 n = 2; bytes more = 3;"), "PROTOBUF")
    wrong = fake.add("y-value", schema("string team = 1; string n = 2;"), "PROTOBUF")
    other = fake.add("z-value", 'syntax = "proto3"; message Else { string team = 1; }', "PROTOBUF")
    body = b"\0\x0a\x03red\x10\x05"
    decoded = form.decode(raw([framed(number, body) for number in (wider, wrong, other)]))
    assert decoded.rows.select(form.columns).rows() == [("red", 5)]
    assert decoded.dead[REASON].to_list() == ["incompatible_schema"] * 2
    assert decoded.dead[DETAIL].to_list() == [
        f"schema {wrong} cannot be read with the pipeline's own schema: Score.n: string was written, int64 is read",
        f"schema {other} cannot be read with the pipeline's own schema: a message Else was written, Score is read",
    ]


def test_types_of_another_file_are_found_by_its_name(fake: FakeRegistry) -> None:
    fake.add("money", 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }', "PROTOBUF")
    order = 'syntax = "proto3"; package shop; import "money.proto"; message Order { Money price = 1; }'
    uses = [{"name": "money.proto", "subject": "money", "version": 1}]
    number = fake.add("order-value", order, "PROTOBUF", uses)
    form = sl.protobuf(registry=sl.registry(fake.url), subject="order-value")
    assert form.types == {"price": "struct<cents: long>"}
    decoded = form.decode(raw([framed(number, b"\0\x0a\x02\x08\x07")]))
    assert decoded.rows["price"].to_list() == [{"cents": 7}]


def test_a_format_without_a_schema_or_registry_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="without a schema"):
        sl.protobuf()
