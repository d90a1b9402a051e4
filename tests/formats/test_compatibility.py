"""Verdicts on schema changes, by the published rules of Avro, Protobuf and the Confluent registry."""

# ruff: noqa: E501 - a table is read line by line

import json
from typing import Any

import pytest

from strandline.errors import InvalidSchema
from strandline.formats.compatibility import check
from strandline.formats.registry.subjects import Kind, Level

YES, NO = True, False


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields, **more}


def of(kind: Any, **more: Any) -> dict[str, Any]:
    return record({"name": "f", "type": kind, **more})


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": symbols, **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


A, B = {"name": "a", "type": "int"}, {"name": "b", "type": "int"}
B0 = {**B, "default": 0}
TREE = record({"name": "next", "type": ["null", "R"]})
TREE2 = record({"name": "next", "type": ["null", "R"]}, {"name": "n", "type": "int", "default": 0})

AVRO: list[tuple[str, Any, Any, bool, bool]] = [
    # what changed, the old schema, the new one; whether the new reads the old (backward), the old the new (forward)
    ("nothing", record(A), record(A), YES, YES),
    ("a field with a default added", record(A), record(A, B0), YES, YES),
    ("a field without a default added", record(A), record(A, B), NO, YES),
    ("a field with a default removed", record(A, B0), record(A), YES, YES),
    ("a field without a default removed", record(A, B), record(A), YES, NO),
    ("a field renamed", record(A), record(B), NO, NO),
    ("a field renamed with an alias", record(A), record({**B, "aliases": ["a"]}), YES, NO),
    ("fields reordered", record(A, B), record(B, A), YES, YES),
    ("a default added", record(A, B), record(A, B0), YES, YES),
    ("int to long", of("int"), of("long"), YES, NO),
    ("int to float", of("int"), of("float"), YES, NO),
    ("int to double", of("int"), of("double"), YES, NO),
    ("long to float", of("long"), of("float"), YES, NO),
    ("long to double", of("long"), of("double"), YES, NO),
    ("float to double", of("float"), of("double"), YES, NO),
    ("string to bytes", of("string"), of("bytes"), YES, YES),
    ("int to string", of("int"), of("string"), NO, NO),
    ("int to boolean", of("int"), of("boolean"), NO, NO),
    ("a type to optional", of("int"), of(["null", "int"]), YES, NO),
    ("a union grows", of(["null", "int"]), of(["null", "int", "string"]), YES, NO),
    ("a union is reordered", of(["null", "int"]), of(["int", "null"]), YES, YES),
    ("a union's branch is promoted", of(["null", "int"]), of(["null", "long"]), YES, NO),
    ("a union of one becomes its type", of(["int"]), of("int"), YES, YES),
    ("a union loses a branch", of(["int", "string"]), of(["string"]), NO, YES),
    ("a union is read as a wide number", of(["int", "long"]), of("double"), YES, NO),
    ("a symbol added", of(enum("A")), of(enum("A", "B")), YES, NO),
    ("a symbol added, with a default", of(enum("A", default="A")), of(enum("A", "B", default="A")), YES, YES),
    ("symbols reordered", of(enum("A", "B")), of(enum("B", "A")), YES, YES),
    ("an enum renamed", of(enum("A")), of(enum("A", name="G")), NO, NO),
    ("an enum renamed with an alias", of(enum("A")), of(enum("A", name="G", aliases=["E"])), YES, NO),
    ("an enum to a string", of(enum("A")), of("string"), NO, NO),
    ("a fixed of another size", of(fixed(4)), of(fixed(8)), NO, NO),
    ("a fixed renamed", of(fixed(4)), of(fixed(4, name="G")), NO, NO),
    ("a fixed to bytes", of(fixed(4)), of("bytes"), NO, NO),
    ("a record renamed", record(A), record(A, name="S"), NO, NO),
    ("a record renamed with an alias", record(A), record(A, name="S", aliases=["R"]), YES, NO),
    ("a record in another namespace", record(A), record(A, namespace="n"), YES, YES),
    ("an array's items promoted", of({"type": "array", "items": "int"}), of({"type": "array", "items": "long"}), YES, NO),
    ("a map's values promoted", of({"type": "map", "values": "int"}), of({"type": "map", "values": "long"}), YES, NO),
    ("an array to a map", of({"type": "array", "items": "int"}), of({"type": "map", "values": "int"}), NO, NO),
    ("an inner field without a default", of(record(A, name="I")), of(record(A, B, name="I")), NO, YES),
    ("an inner field with a default", of(record(A, name="I")), of(record(A, B0, name="I")), YES, YES),
    ("a record that contains itself grows", TREE, TREE2, YES, YES),
    ("a logical type is added", of("long"), of({"type": "long", "logicalType": "timestamp-millis"}), YES, YES),
    ("a record to a primitive", record(A), "int", NO, NO),
]  # fmt: skip


def proto(body: str, head: str = "") -> str:
    return f'syntax = "proto3"; {head} message M {{ {body} }}'


PROTOBUF: list[tuple[str, str, str, bool, bool]] = [
    ("a field added", proto("int32 a = 1;"), proto("int32 a = 1; int32 b = 2;"), YES, YES),
    ("a field removed", proto("int32 a = 1; int32 b = 2;"), proto("int32 a = 1;"), YES, YES),
    ("a field renamed", proto("int32 a = 1;"), proto("int32 b = 1;"), YES, YES),
    ("a number changed to a new one", proto("int32 a = 1;"), proto("int32 a = 2;"), YES, YES),
    ("int32 to int64", proto("int32 a = 1;"), proto("int64 a = 1;"), YES, YES),
    ("int32 to uint32", proto("int32 a = 1;"), proto("uint32 a = 1;"), YES, YES),
    ("int64 to bool", proto("int64 a = 1;"), proto("bool a = 1;"), YES, YES),
    ("int32 to sint32", proto("int32 a = 1;"), proto("sint32 a = 1;"), NO, NO),
    ("sint32 to sint64", proto("sint32 a = 1;"), proto("sint64 a = 1;"), YES, YES),
    ("fixed32 to sfixed32", proto("fixed32 a = 1;"), proto("sfixed32 a = 1;"), YES, YES),
    ("fixed64 to sfixed64", proto("fixed64 a = 1;"), proto("sfixed64 a = 1;"), YES, YES),
    ("fixed32 to fixed64", proto("fixed32 a = 1;"), proto("fixed64 a = 1;"), NO, NO),
    ("string to bytes", proto("string a = 1;"), proto("bytes a = 1;"), YES, YES),
    ("int32 to string", proto("int32 a = 1;"), proto("string a = 1;"), NO, NO),
    ("float to double", proto("float a = 1;"), proto("double a = 1;"), NO, NO),
    ("an enum to int32", proto("enum E { Z = 0; } E a = 1;"), proto("int32 a = 1;"), YES, YES),
    ("an enum's value added", proto("enum E { Z = 0; } E a = 1;"), proto("enum E { Z = 0; Y = 1; } E a = 1;"), YES, YES),
    ("a text repeated", proto("string a = 1;"), proto("repeated string a = 1;"), YES, YES),
    ("a number repeated", proto("int32 a = 1;"), proto("repeated int32 a = 1;"), NO, NO),
    ("a scalar to a message", proto("int32 a = 1;", "message I { }"), proto("I a = 1;", "message I { }"), NO, NO),
    ("another message", proto("I a = 1;", "message I { } message J { }"), proto("J a = 1;", "message I { } message J { }"), NO, NO),
    ("a message added", proto("int32 a = 1;"), proto("int32 a = 1;") + " message N { }", YES, NO),
    ("an inner message changed", proto("I a = 1; message I { int32 x = 1; }"), proto("I a = 1; message I { string x = 1; }"), NO, NO),
    ("a choice grows", proto("oneof c { int32 a = 1; }"), proto("oneof c { int32 a = 1; int32 b = 2; }"), YES, NO),
    ("a field into a new choice", proto("int32 a = 1;"), proto("oneof c { int32 a = 1; }"), YES, YES),
    ("two fields into a new choice", proto("int32 a = 1; int32 b = 2;"), proto("oneof c { int32 a = 1; int32 b = 2; }"), NO, YES),
    ("a field into a choice that was there", proto("oneof c { int32 a = 1; } int32 b = 2;"), proto("oneof c { int32 a = 1; int32 b = 2; }"), NO, YES),
    ("a field becomes optional", proto("int32 a = 1;"), proto("optional int32 a = 1;"), YES, YES),
    ("a removed field is reserved", proto("int32 a = 1; int32 b = 2;"), proto("int32 a = 1; reserved 2;"), YES, YES),
    ("a map's values of another type", proto("map<string, int32> a = 1;"), proto("map<string, string> a = 1;"), NO, NO),
    ("a map renamed", proto("map<string, int32> a = 1;"), proto("map<string, int64> b = 1;"), YES, YES),
    ("a type by its full name", proto("I a = 1; message I { }"), proto(".M.I a = 1; message I { }"), YES, YES),
    ("messages in another order", proto("") + "message N { }", 'syntax = "proto3"; message N { } message M { }', YES, YES),
    ("an enum's value renamed", proto("enum E { Z = 0; } E a = 1;"), proto("enum E { Y = 0; } E a = 1;"), YES, YES),
    ("a required field removed", 'syntax = "proto2"; message M { required int32 a = 1; }', 'syntax = "proto2"; message M { }', NO, NO),
    ("another package", proto("int32 a = 1;", "package p;"), proto("int32 a = 1;", "package q;"), YES, YES),
    ("a required field added", 'syntax = "proto2"; message M { }', 'syntax = "proto2"; message M { required int32 a = 1; }', NO, NO),
]  # fmt: skip


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def opened(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


INT, NUMBER, STRING = {"type": "integer"}, {"type": "number"}, {"type": "string"}
JSON: list[tuple[str, Any, Any, bool, bool]] = [
    ("anything to nothing in particular", opened(a=INT), {}, YES, NO),
    ("an integer to a number", opened(a=INT), opened(a=NUMBER), YES, NO),
    ("a number to a text", opened(a=NUMBER), opened(a=STRING), NO, NO),
    ("a type to two", opened(a=INT), opened(a={"type": ["integer", "null"]}), YES, NO),
    ("a property added to an open object", opened(a=INT), opened(a=INT, b=INT), NO, YES),
    ("any property added to an open object", opened(a=INT), opened(a=INT, b={}), YES, YES),
    ("a property added to a closed object", closed(a=INT), closed(a=INT, b=INT), YES, NO),
    ("a required property added", closed(a=INT), {**closed(a=INT, b=INT), "required": ["b"]}, NO, NO),
    ("a required property with a default", closed(a=INT), {**closed(a=INT, b={**INT, "default": 0}), "required": ["b"]}, YES, NO),
    ("a property becomes required", closed(a=INT), {**closed(a=INT), "required": ["a"]}, NO, YES),
    ("an open object is closed", opened(a=INT), closed(a=INT), NO, YES),
    ("others must be texts now", opened(), {"type": "object", "additionalProperties": STRING}, NO, YES),
    ("a value added to an enum", {"enum": ["a"]}, {"enum": ["a", "b"]}, YES, NO),
    ("an enum instead of a text", STRING, {**STRING, "enum": ["a"]}, NO, YES),
    ("a longer text", {**STRING, "maxLength": 5}, {**STRING, "maxLength": 9}, YES, NO),
    ("a longest text", STRING, {**STRING, "maxLength": 9}, NO, YES),
    ("a lower minimum", {**INT, "minimum": 5}, {**INT, "minimum": 1}, YES, NO),
    ("a pattern added", STRING, {**STRING, "pattern": "^a"}, NO, YES),
    ("multiples of four to multiples of two", {**INT, "multipleOf": 4}, {**INT, "multipleOf": 2}, YES, NO),
    ("items of another type", {"type": "array", "items": INT}, {"type": "array", "items": STRING}, NO, NO),
    ("items that differ", {"type": "array"}, {"type": "array", "uniqueItems": True}, NO, YES),
    ("one of two", INT, {"oneOf": [INT, STRING]}, YES, NO),
    ("one of two to one of three", {"anyOf": [INT, STRING]}, {"anyOf": [INT, STRING, {"type": "null"}]}, YES, NO),
    ("not added", INT, {**INT, "not": {"const": 5}}, NO, YES),
    ("a definition moved out", opened(a=INT), {**opened(a={"$ref": "#/$defs/n"}), "$defs": {"n": INT}}, YES, YES),
    ("a property that a pattern described", {**closed(), "patternProperties": {"^n_": INT}}, {**closed(n_a=NUMBER), "patternProperties": {"^n_": INT}}, YES, NO),
    ("a property given over to a pattern", closed(n_a=INT), {**closed(), "patternProperties": {"^n_": NUMBER}}, YES, NO),
    ("a property like all others", {"additionalProperties": STRING}, {"additionalProperties": STRING, "properties": {"a": STRING}}, YES, YES),
    ("a property unlike the others", {"additionalProperties": STRING}, {"additionalProperties": STRING, "properties": {"a": INT}}, NO, NO),
    ("a requirement without a description", opened(a=INT), {**opened(a=INT), "required": ["b"]}, YES, YES),
    ("a choice made into a sum", {"oneOf": [INT]}, {"allOf": [INT]}, NO, YES),
    ("less is forbidden", {"not": NUMBER}, {"not": INT}, YES, NO),
    ("a first item of another type", {"items": [INT]}, {"items": [STRING]}, NO, NO),
    ("an item added to an open list", {"items": [INT]}, {"items": [INT, INT]}, NO, YES),
    ("an item added to a closed list", {"items": [INT], "additionalItems": False}, {"items": [INT, INT], "additionalItems": False}, YES, NO),
    ("an item like the rest", {"prefixItems": [INT], "items": STRING}, {"prefixItems": [INT, STRING], "items": STRING}, YES, YES),
    ("a dependency removed", {"dependencies": {"a": ["b"]}}, {"dependencies": {}}, YES, NO),
    ("a dependency of another type", {"dependentSchemas": {"a": INT}}, {"dependentSchemas": {"a": STRING}}, NO, NO),
    ("more is required beside it", {"dependentRequired": {"a": ["b"]}}, {"dependentRequired": {"a": ["b", "c"]}}, NO, YES),
    ("a title changed", {"title": "a"}, {"title": "b"}, YES, YES),
    ("a condition added", INT, {**INT, "if": {"minimum": 5}, "then": False}, NO, YES),
]  # fmt: skip

CASES: list[tuple[Any, ...]] = [
    *((Kind.AVRO, name, json.dumps(old), json.dumps(new), *verdicts) for name, old, new, *verdicts in AVRO),
    *((Kind.PROTOBUF, name, old, new, *verdicts) for name, old, new, *verdicts in PROTOBUF),
    *((Kind.JSON, name, json.dumps(old), json.dumps(new), *verdicts) for name, old, new, *verdicts in JSON),
]


@pytest.mark.parametrize(
    ("kind", "old", "new", "backward", "forward"),
    [(case[0], *case[2:]) for case in CASES],
    ids=[f"{case[0].value.lower()}: {case[1]}" for case in CASES],
)
def test_the_verdict_on_a_change(kind: Kind, old: str, new: str, backward: bool, forward: bool) -> None:
    def fits(level: Level) -> bool:
        return not check(new, [old], level, kind)

    assert fits(Level.BACKWARD) is backward, check(new, [old], Level.BACKWARD, kind)
    assert fits(Level.FORWARD) is forward, check(new, [old], Level.FORWARD, kind)
    assert fits(Level.FULL) is (backward and forward)
    assert fits(Level.NONE)


def test_a_level_checks_the_last_version_or_all_versions() -> None:
    first, second = json.dumps(record(A)), json.dumps(record(A, B0))
    third = json.dumps(record(A, B))  # reads what the second wrote, not what the first did
    assert check(third, [first, second], Level.BACKWARD) == []
    (reason,) = check(third, [first, second], Level.BACKWARD_TRANSITIVE)
    assert reason.startswith("cannot read version 1: b: the field is not written")
    back = json.dumps(record(B0))
    assert check(back, [first, second], Level.FORWARD) == check(back, [first, second], Level.FORWARD_TRANSITIVE)[:1]
    assert len(check(back, [first, second], Level.FULL_TRANSITIVE)) == 2
    assert check(third, [], Level.FULL_TRANSITIVE) == []


def test_messages_of_imported_files_are_checked() -> None:
    uses = {
        "one.proto": 'syntax = "proto3"; package p; message I { int32 x = 1; }',
        "two.proto": 'syntax = "proto3"; package p; message I { string x = 1; }',
        "three.proto": 'syntax = "proto3"; package q; message I { int64 x = 1; }',
    }
    one, two = (f'syntax = "proto3"; import "{name}.proto"; message M {{ p.I i = 1; }}' for name in ("one", "two"))
    three = 'syntax = "proto3"; import "three.proto"; message M { q.I i = 1; }'
    assert check(two, [one], Level.BACKWARD, Kind.PROTOBUF, uses) == [
        "cannot read version 1: I.x: int32 was written, string is read"
    ]
    assert check(three, [one], Level.FULL, Kind.PROTOBUF, uses) == []


def test_reasons_name_their_place() -> None:
    old = json.dumps(of(record({"name": "x", "type": "int"}, name="I")))
    new = json.dumps(of(record({"name": "x", "type": "string"}, name="I")))
    assert check(new, [old], Level.BACKWARD) == ["cannot read version 1: f.x: int was written, string is read"]


@pytest.mark.parametrize("kind", Kind)
def test_a_schema_that_cannot_be_read_is_refused(kind: Kind) -> None:
    with pytest.raises(InvalidSchema):
        check("{", ["{"], Level.FULL, kind)


def test_a_reference_out_of_a_json_schema_is_refused() -> None:
    for name in ("http://example.org/x.json", "#/$defs/nothing"):
        with pytest.raises(InvalidSchema, match="refers to"):
            check(json.dumps({"$ref": name}), ["{}"], Level.BACKWARD, Kind.JSON)
