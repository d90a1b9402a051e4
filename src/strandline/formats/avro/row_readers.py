"""Decode Avro records one at a time, for schemas with arrays and maps, by a chain of readers made once per schema
pair."""

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import polars as pl
import pyarrow as pa

from strandline.errors import InvalidSchema
from strandline.formats.avro.columns import default_of, written_as
from strandline.formats.avro.schema import (
    NO_DEFAULT,
    NULL,
    Array,
    Enum,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
    columns_of,
    optional,
)
from strandline.formats.varints import (
    ENDLESS,
    NEGATIVE,
    NO_BOOLEAN,
    NO_BRANCH,
    NO_SYMBOL,
    NO_TIME,
    NOT_UTF8,
    OUT_OF_RANGE,
    TOO_MANY,
    TRAILING,
    TRUNCATED,
)

_EPOCH, _DAY_ZERO = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
_DEEPEST: Final = 64
_MOST_COLLECTIONS: Final = 250_000
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")

Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at a position of a record; returns the value and the position after it."""
Meaning = Callable[[Any], Any]


def read_rows(values: Sequence[bytes], writer: Record, reader: Record) -> tuple[pl.DataFrame, dict[int, str]]:
    """Decode the reader's columns of every record; return the records that are invalid, with reasons."""
    work = _Work()
    read, schema = _reader_for(writer, reader, (), work), columns_of(reader)
    found: list[Any] = []
    wrong: dict[int, str] = {}
    for place, value in enumerate(values):
        work.begin()
        try:
            row, end = read(value, 0)
            if end != len(value):
                raise ValueError(TRAILING)
            found.append(row)
        except IndexError:
            found.append(None)
            wrong[place] = TRUNCATED
        except ValueError as problem:
            found.append(None)
            wrong[place] = str(problem)
    columns = {each.name: pa.array([row and row[each.name] for row in found], each.type) for each in schema}
    shape = pl.Schema(schema)
    return pl.DataFrame(columns).cast(shape), wrong


def _reader_for(writer: Node, reader: Node | None, above: tuple[Node, ...], work: "_Work") -> Read:
    """Return a reader that converts the writer's type to the reader's, or skips the value."""
    if len(above) > _DEEPEST or (isinstance(writer, Record) and writer in above):
        raise InvalidSchema(
            f"the record {getattr(writer, 'name', '')} contains itself", hint="use a schema without recursive records"
        )
    inside = (*above, writer)
    if isinstance(writer, Union):
        return _union([_reader_for(each, reader, inside, work) for each in writer.branches])
    if isinstance(reader, Union):
        reader = optional(reader)
    match writer:
        case Record():
            return _record(writer, reader if isinstance(reader, Record) else None, inside, work)
        case Array(items):
            if _is_weightless(items):
                raise InvalidSchema("an Avro array of zero-size values has no size limit")
            return _array(_reader_for(items, reader.items if isinstance(reader, Array) else None, inside, work), work)
        case Map(values):
            return _map(_reader_for(values, reader.values if isinstance(reader, Map) else None, inside, work), work)
        case Enum(symbols=symbols):
            return _enum(symbols, reader)
        case Fixed(size=size):
            return _converted(lambda data, at: (_slice(data, at, size), at + size), _meaning(writer, reader))
        case Primitive():
            return _converted(_PLAIN[writer.name], _meaning(writer, reader))


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70 or value >> 64:
            raise ValueError(ENDLESS)
    return value >> 1 ^ -(value & 1), at + 1


def _int(data: bytes, at: int) -> tuple[int, int]:
    value, at = _long(data, at)
    if not -(2**31) <= value < 2**31:
        raise ValueError(OUT_OF_RANGE)
    return value, at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise ValueError(NO_BOOLEAN)
    return data[at] == 1, at + 1


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if size < 0:
        raise ValueError(NEGATIVE)
    return _slice(data, at, size), at + size


def _slice(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise IndexError(TRUNCATED)
    return data[at : at + size]


_PLAIN: Final[dict[str, Read]] = {
    "null": lambda _, at: (None, at),
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": lambda data, at: (_FLOAT.unpack(_slice(data, at, 4))[0], at + 4),
    "double": lambda data, at: (_DOUBLE.unpack(_slice(data, at, 8))[0], at + 8),
    "bytes": _bytes,
    "string": _bytes,
}


def _converted(read: Read, meaning: Meaning | None) -> Read:
    if meaning is None:
        return read

    def both(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        return meaning(value), at

    return both


def _record(writer: Record, reader: Record | None, inside: tuple[Node, ...], work: "_Work") -> Read:
    wanted = {} if reader is None else {id(written_as(each, writer)): each for each in reader.fields}
    steps: list[tuple[str | None, Read]] = []
    for each in writer.fields:
        target = wanted.get(id(each))
        name, kind = (None, None) if target is None else (target.name, target.type)
        steps.append((name, _reader_for(each.type, kind, inside, work)))
    fixed = {
        each.name: None if each.default is NO_DEFAULT else default_of(each.type, each.default)
        for each in (reader.fields if reader is not None else ())
        if written_as(each, writer) is None
    }

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        row = dict(fixed)
        for name, step in steps:
            value, at = step(data, at)
            if name is not None:
                row[name] = value
        return row, at

    return read


def _union(branches: list[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = _long(data, at)
        if not 0 <= branch < len(branches):
            raise ValueError(NO_BRANCH)
        return branches[branch](data, at)

    return read


def _blocks(data: bytes, at: int) -> tuple[int, int]:
    """Read the number of items in the next block; a negative count is followed by the block's size in bytes, which is
    ignored."""
    count, at = _long(data, at)
    if count < 0:
        _, at = _long(data, at)
    if abs(count) > len(data) - at:
        raise IndexError(TRUNCATED)
    return abs(count), at


class _Work:
    """Counts the arrays and maps of a record, each of which costs far more than the byte that an empty one takes."""

    def __init__(self) -> None:
        self.left = _MOST_COLLECTIONS

    def begin(self) -> None:
        self.left = _MOST_COLLECTIONS

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ValueError(TOO_MANY)


def _array(item: Read, work: _Work) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        work.take()
        found: list[Any] = []
        count, at = _blocks(data, at)
        while count:
            for _ in range(count):
                value, at = item(data, at)
                found.append(value)
            count, at = _blocks(data, at)
        return found, at

    return read


def _map(item: Read, work: _Work) -> Read:
    def read(data: bytes, at: int) -> tuple[list[tuple[str, Any]], int]:
        work.take()
        found: dict[str, Any] = {}
        count, at = _blocks(data, at)
        while count:
            for _ in range(count):
                key, at = _bytes(data, at)
                found[_text(key)], at = item(data, at)
            count, at = _blocks(data, at)
        return list(found.items()), at

    return read


def _enum(symbols: tuple[str, ...], reader: Node | None) -> Read:
    if isinstance(reader, Enum):
        known = frozenset(reader.symbols)
        symbols = tuple(each if each in known else (reader.default or each) for each in symbols)

    def read(data: bytes, at: int) -> tuple[str, int]:
        place, at = _long(data, at)
        if not 0 <= place < len(symbols):
            raise ValueError(NO_SYMBOL)
        return symbols[place], at

    return read


def _meaning(writer: Primitive | Fixed, reader: Node | None) -> Meaning | None:
    """Convert a value to the logical type that the writer declares, or else the reader."""
    if not isinstance(reader, Primitive | Fixed) or writer == NULL:
        return _text if isinstance(writer, Primitive) and writer.name == "string" else None
    if reader.logical == "decimal":
        scale = writer.scale if writer.logical == "decimal" else reader.scale
        return _decimal(scale, reader.precision, reader.scale)
    if isinstance(writer, Fixed):
        return (lambda found: str(UUID(bytes=found))) if writer.logical == "uuid" else None
    if reader.logical == "date":
        return _in_calendar(lambda found: _DAY_ZERO + timedelta(days=found))
    if reader.logical is not None and "timestamp" in reader.logical:
        unit = 1000 if (writer.logical or reader.logical).endswith("-millis") else 1
        return _in_calendar(lambda found: _EPOCH + timedelta(microseconds=found * unit))
    if reader.name == "string":
        return _text
    return float if reader.name in ("float", "double") else None


def _in_calendar(read: Meaning) -> Meaning:
    def meaning(found: int) -> Any:
        try:
            return read(found)
        except OverflowError:
            raise ValueError(NO_TIME) from None

    return meaning


def _decimal(scale: int, precision: int, wanted: int) -> Meaning:
    step, most = 10 ** abs(wanted - scale), 10**precision

    def meaning(found: bytes) -> Decimal:
        number = int.from_bytes(found, "big", signed=True)
        number, rest = (number * step, 0) if wanted >= scale else divmod(number, step)
        if rest or abs(number) >= most:
            raise ValueError(OUT_OF_RANGE)
        return Decimal(f"{number}e{-wanted}")

    return meaning


def _text(found: bytes) -> str:
    try:
        return found.decode()
    except UnicodeDecodeError:
        raise ValueError(NOT_UTF8) from None


def _is_weightless(node: Node, seen: set[int] | None = None) -> bool:
    """Whether values of a type take no bytes. Each record is looked at once."""
    seen = set() if seen is None else seen
    if isinstance(node, Record):
        if id(node) in seen:
            return True
        seen.add(id(node))
        return all(_is_weightless(each.type, seen) for each in node.fields)
    return node == NULL or (isinstance(node, Fixed) and node.size == 0)
