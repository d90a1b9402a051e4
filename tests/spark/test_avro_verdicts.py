"""Our verdicts on Avro schemas against Avro's own checker, which registries ask: hundreds of changes, both ways."""

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from strandline.errors import InvalidSchema
from strandline.formats.avro.compatibility import can_read_avro
from tests.formats.test_compatibility import AVRO

pytestmark = pytest.mark.spark

PAIRS: Final = 500
SEED: Final = 7
PRIMITIVES: Final = ("boolean", "int", "long", "float", "double", "bytes", "string")
DEFAULTS: Final = {"boolean": True, "int": 1, "long": 1, "float": 1.5, "double": 1.5, "bytes": "a", "string": "a"}
NAMES: Final = ("Ant", "Bee", "Cat", "Dog", "Eel", "Fox", "Gnu", "Hen")


class Maker:
    """Draws schemas, in which each name is defined once, and changes of schemas as people make them."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._names: list[str] = []

    def schema(self) -> dict[str, Any]:
        self._names = self._draw.sample(NAMES, len(NAMES))
        return self._record(3)

    def _record(self, depth: int) -> dict[str, Any]:
        name = self._names.pop()
        fields = [self._field(f"f{number}", depth - 1) for number in range(self._draw.randint(1, 4))]
        space = self._draw.choice(({}, {}, {"namespace": "zoo"}))
        return {"type": "record", "name": name, "fields": fields, **space}

    def _field(self, name: str, depth: int) -> dict[str, Any]:
        kind = self._type(depth)
        field = {"name": name, "type": kind}
        if self._draw.random() < 0.4:
            field |= self._default(kind)
        return field

    def _default(self, kind: Any) -> dict[str, Any]:
        first = kind[0] if isinstance(kind, list) and kind else kind
        if first == "null":
            return {"default": None}
        return {"default": DEFAULTS[first]} if isinstance(first, str) and first in DEFAULTS else {}

    def _type(self, depth: int) -> Any:
        if depth <= 0 or self._draw.random() < 0.5:
            return self._draw.choice(PRIMITIVES)
        kinds = ["array", "map", "union", "union"]
        if len(self._names) > 1:
            kinds += ["record", "enum", "enum", "fixed"]
        match self._draw.choice(kinds):
            case "array":
                return {"type": "array", "items": self._type(depth - 1)}
            case "map":
                return {"type": "map", "values": self._type(depth - 1)}
            case "union":
                return self._draw.sample(("null", *PRIMITIVES), self._draw.randint(1, 3))
            case "record":
                return self._record(depth)
            case "enum":
                symbols = self._draw.sample("ABCDE", self._draw.randint(1, 4))
                default = {"default": symbols[0]} if self._draw.random() < 0.5 else {}
                return {"type": "enum", "name": self._names.pop(), "symbols": symbols, **default}
            case _:
                return {"type": "fixed", "name": self._names.pop(), "size": self._draw.choice((4, 8))}

    def changed(self, schema: dict[str, Any]) -> dict[str, Any]:
        new = copy.deepcopy(schema)
        for _ in range(self._draw.choice((1, 1, 1, 2, 3))):
            self._change(self._draw.choice(list(_inside(new))))
        return new

    def _change(self, part: dict[str, Any]) -> None:
        match part.get("type"):
            case "record":
                self._change_record(part)
            case "enum":
                self._change_enum(part)
            case "fixed":
                self._rename(part) if self._draw.random() < 0.5 else part.update(size=12 - part["size"])
            case "array" | "map":
                inner = "items" if part["type"] == "array" else "values"
                part[inner] = self._draw.choice((*PRIMITIVES, part[inner]))
            case _:
                self._change_field(part)

    def _change_record(self, record: dict[str, Any]) -> None:
        fields: list[Any] = record["fields"]
        match self._draw.choice(("add", "add", "remove", "shuffle", "rename", "move")):
            case "add":
                fields.append(self._field(f"g{self._draw.randint(0, 99)}", 0))
            case "remove":
                fields.pop(self._draw.randrange(len(fields))) if len(fields) > 1 else None
            case "shuffle":
                self._draw.shuffle(fields)
            case "rename":
                self._rename(record)
            case _:
                record["namespace"] = self._draw.choice(("zoo", "farm"))

    def _change_enum(self, enum: dict[str, Any]) -> None:
        match self._draw.choice(("add", "remove", "default", "rename")):
            case "add":
                enum["symbols"] = [*enum["symbols"], "Z"]
            case "remove":
                kept = enum["symbols"][:-1] or ["Y"]
                enum["symbols"] = kept
                enum.pop("default", None)
            case "default":
                enum["default"] = enum["symbols"][0]
            case _:
                self._rename(enum)

    def _change_field(self, field: dict[str, Any]) -> None:
        kind = field["type"]
        match self._draw.choice(("type", "type", "optional", "reorder", "rename", "default")):
            case "type":
                field["type"] = self._draw.choice(PRIMITIVES)
                field.pop("default", None)
            case "optional" if not isinstance(kind, list):
                field |= {"type": ["null", kind], "default": None}
            case "reorder" if isinstance(kind, list):
                field["type"] = kind[::-1]
                field.pop("default", None)
            case "rename":
                self._rename(field)
            case _:
                field |= self._default(kind)

    def _rename(self, part: dict[str, Any]) -> None:
        old = part["name"]
        part["name"] = f"{old}{self._draw.randint(0, 9)}"
        if self._draw.random() < 0.5:
            part["aliases"] = [old]


def _inside(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part that can change: types with a name or a content, and fields."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _inside(branch)
    elif isinstance(schema, dict):
        if schema.get("type") in ("record", "enum", "fixed", "array", "map"):
            yield schema
        for field in schema.get("fields", ()):
            yield field
            yield from _inside(field["type"])
        for inner in ("items", "values"):
            yield from _inside(schema.get(inner))


def avros_verdict(spark: SparkSession, reader: str, writer: str) -> bool | None:
    """What Avro itself says; None if it does not take one of the schemas."""
    avro = spark._jvm.org.apache.avro  # type: ignore[union-attr]
    try:
        both = [getattr(avro, "Schema$Parser")().parse(text) for text in (reader, writer)]
    except Py4JJavaError:
        return None
    said = avro.SchemaCompatibility.checkReaderWriterCompatibility(*both)
    return bool(said.getType().name() == "COMPATIBLE")


def our_verdict(reader: str, writer: str) -> bool | None:
    try:
        return not can_read_avro(reader, writer)
    except InvalidSchema:
        return None


def test_every_verdict_on_hundreds_of_drawn_changes_is_that_of_avros_own_checker(spark: SparkSession) -> None:
    maker = Maker(SEED)
    told: Counter[bool | None] = Counter()
    for _ in range(PAIRS):
        old = maker.schema()
        texts = json.dumps(old), json.dumps(maker.changed(old))
        for reader, writer in (texts, texts[::-1]):
            theirs = avros_verdict(spark, reader, writer)
            told[theirs] += 1
            # What Avro does not take as a schema, it has no verdict on.
            if theirs is not None:
                assert our_verdict(reader, writer) == theirs, f"reader {reader}\nwriter {writer}"
    assert told[True] > PAIRS // 3
    assert told[False] > PAIRS // 3
    assert told[None] < PAIRS // 10


@pytest.mark.parametrize("what", range(len(AVRO)), ids=[row[0] for row in AVRO])
def test_the_table_of_changes_says_what_avros_own_checker_says(spark: SparkSession, what: int) -> None:
    _, old, new, backward, forward = AVRO[what]
    older, newer = json.dumps(old), json.dumps(new)
    assert (avros_verdict(spark, newer, older), avros_verdict(spark, older, newer)) == (backward, forward)
