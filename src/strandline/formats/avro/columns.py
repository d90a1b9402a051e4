"""Decode Avro records to columns, field by field across all records at once, resolved against a reader's schema.

Supported are records of primitives, enums, fixed, nested records and unions of them. Arrays and maps have a different
number of values in every record; those schemas are read one record at a time (`row_readers.py`).
"""

from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.formats.avro.schema import (
    NO_DEFAULT,
    NULL,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
    arrow_of,
    columns_of,
    optional,
)
from strandline.formats.varints import NO_BOOLEAN, NO_BRANCH, NO_SYMBOL, NO_TIME, OUT_OF_RANGE, REASONS, Cursor, Ints

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
_DAY: Final = 86_400_000_000
FIRST_INSTANT, LAST_INSTANT = FIRST_DAY * _DAY, (LAST_DAY + 1) * _DAY - 1
"""The years 1 to 9999, in days and in microseconds: the range that all other parts of a pipeline support."""


def is_columnar(writer: Node, above: tuple[Record, ...] = ()) -> bool:
    """Whether every record of this schema has the same sequence of fields, without arrays and maps."""
    match writer:
        case Primitive() | Enum() | Fixed():
            return True
        case Array() | Map():
            return False
        case Union(branches):
            return all(is_columnar(each, above) for each in branches)
        case Record():
            return writer not in above and all(is_columnar(each.type, (*above, writer)) for each in writer.fields)


def read_columns(cursor: Cursor, writer: Record, reader: Record) -> tuple[pl.DataFrame, dict[int, str]]:
    """Decode the reader's columns of every record; return the records that are invalid, with reasons."""
    rows = np.arange(len(cursor.at))
    arrays = _fields(cursor, rows, writer, reader)
    cursor.finish()
    schema = columns_of(reader)
    found = pl.DataFrame(dict(zip(schema.names, arrays, strict=True)))
    shape = pl.Schema(schema)
    bad = np.flatnonzero(cursor.wrong).tolist()
    return found.cast(shape), {place: REASONS[cursor.wrong[place]] for place in bad}


def written_as(field: Field, writer: Record) -> Field | None:
    """The writer's field that a reader's field is read from, by name or alias."""
    return next((found for name in (field.name, *field.aliases) if (found := writer.named(name)) is not None), None)


def default_of(node: Node, default: Any) -> Any:
    """Convert a default from JSON to a value of this type."""
    match node:
        case Union(branches):
            if default is None and NULL in branches:
                return None
            real = optional(node)
            return default if real is None else default_of(real, default)
        case Record():
            return {each.name: default_of(each.type, default.get(each.name, each.default)) for each in node.fields}
        case Array(items):
            return [default_of(items, each) for each in default]
        case Map(values):
            return [(key, default_of(values, each)) for key, each in default.items()]
        case Enum():
            return default
        case Primitive() | Fixed():
            return _default(node, default)


def _default(node: Primitive | Fixed, default: Any) -> Any:
    if node.logical == "decimal":
        number = int.from_bytes(default.encode("latin-1"), "big", signed=True)
        return Decimal(f"{number}e{-node.scale}")
    if isinstance(node, Fixed) or node.name == "bytes":
        return default.encode("latin-1")
    if node.logical is not None and node.logical.endswith("timestamp-millis"):
        return default * 1000
    return default


def _fields(cursor: Cursor, rows: Ints, writer: Record, reader: Record | None) -> list[pa.Array]:
    wanted = {} if reader is None else {id(written_as(each, writer)): each for each in reader.fields}
    found: dict[str, pa.Array] = {}
    for each in writer.fields:
        target = wanted.get(id(each))
        values = _read(cursor, rows, each.type, None if target is None else target.type)
        if target is not None:
            found[target.name] = values
    if reader is None:
        return []
    return [found[each.name] if each.name in found else _defaults(each, len(rows)) for each in reader.fields]


def _defaults(field: Field, count: int) -> pa.Array:
    value = None if field.default is NO_DEFAULT else default_of(field.type, field.default)
    one = pa.array([value], arrow_of(field.type, field.name))
    return one.take(pa.array(np.zeros(count, np.int64)))


def _read(cursor: Cursor, rows: Ints, writer: Node, reader: Node | None) -> pa.Array:
    if isinstance(reader, Union):
        reader = optional(reader)
    if reader is not None and writer == NULL:
        return pa.nulls(len(rows), arrow_of(reader, ""))
    match writer:
        case Union(branches):
            return _branches(cursor, rows, branches, reader)
        case Record():
            inner = reader if isinstance(reader, Record) else None
            arrays = _fields(cursor, rows, writer, inner)
            if inner is None:
                return None
            return pa.StructArray.from_arrays(arrays, [each.name for each in inner.fields])
        case Enum(symbols=symbols):
            return _symbol(cursor, rows, symbols, reader)
        case Fixed(size=size):
            starts, lengths = cursor.spans(rows, size=size)
            return None if reader is None else _of_bytes(cursor, rows, starts, lengths, writer, reader)
        case Primitive(name="bytes" | "string"):
            starts, lengths = cursor.spans(rows, cursor.zigzag(rows))
            return None if reader is None else _of_bytes(cursor, rows, starts, lengths, writer, reader)
        case Primitive():
            return _number(cursor, rows, writer, reader)
    raise AssertionError(f"{writer} is not read in columns")


def _branches(cursor: Cursor, rows: Ints, branches: tuple[Node, ...], reader: Node | None) -> pa.Array:
    """Read each branch from the records that use it, then restore the order of the records."""
    branch = cursor.zigzag(rows)
    cursor.report(rows, (branch < 0) | (branch >= len(branches)), NO_BRANCH)
    parts, taken = [], []
    for place, each in enumerate(branches):
        using = np.flatnonzero(branch == place)
        if len(using) and each != NULL:
            parts.append(_read(cursor, rows[using], each, reader))
            taken.append(using)
    if reader is None:
        return None
    kind = arrow_of(reader, "")
    if not parts:
        return pa.nulls(len(rows), kind)
    if len(parts) > 1:
        parts = [part.cast(kind) for part in parts]
    order = np.full(len(rows), -1)
    order[np.concatenate(taken)] = np.arange(sum(map(len, taken)))
    return pa.concat_arrays(parts).take(pa.array(order, mask=order < 0))


def _symbol(cursor: Cursor, rows: Ints, symbols: tuple[str, ...], reader: Node | None) -> pa.Array:
    place = cursor.zigzag(rows)
    cursor.report(rows, (place < 0) | (place >= len(symbols)), NO_SYMBOL)
    if reader is None:
        return None
    if isinstance(reader, Enum):
        symbols = tuple(each if each in reader.symbols else (reader.default or each) for each in symbols)
    return pa.array(symbols, pa.large_string()).take(pa.array(place.clip(0, len(symbols) - 1)))


def _number(cursor: Cursor, rows: Ints, writer: Primitive, reader: Node | None) -> pa.Array:
    match writer.name:
        case "null":
            return None
        case "boolean":
            byte = cursor.byte(rows)
            cursor.report(rows, byte > 1, NO_BOOLEAN)
            return pa.array(byte.astype(np.bool_))
        case "float":
            return pa.array(cursor.numbers(rows, "<f4")).cast(_arrow_or(reader, pa.float32()))
        case "double":
            return pa.array(cursor.numbers(rows, "<f8"))
    found = cursor.zigzag(rows)
    if writer.name == "int":
        cursor.report(rows, (found < -(2**31)) | (found >= 2**31), OUT_OF_RANGE)
    return None if reader is None else _convert(cursor, rows, found, writer, reader)


def _convert(cursor: Cursor, rows: Ints, found: Ints, writer: Primitive, reader: Node) -> pa.Array:
    """Convert integers to the logical type that the writer declares, or else the reader."""
    kind = arrow_of(reader, "")
    if pa.types.is_date(kind):
        cursor.report(rows, (found < FIRST_DAY) | (found > LAST_DAY), NO_TIME)
        return pa.array(found.clip(FIRST_DAY, LAST_DAY).astype(np.int32)).cast(pa.date32())
    if pa.types.is_timestamp(kind):
        logical = writer.logical or (reader.logical if isinstance(reader, Primitive) else None) or ""
        unit = 1000 if logical.endswith("-millis") else 1
        cursor.report(rows, (found < FIRST_INSTANT // unit) | (found > LAST_INSTANT // unit), NO_TIME)
        return pa.array(found.clip(FIRST_INSTANT // unit, LAST_INSTANT // unit) * unit).cast(kind)
    if pa.types.is_int32(kind):
        return pa.array(found.astype(np.int32))
    return pa.array(found.astype(kind.to_pandas_dtype()))


def _of_bytes(
    cursor: Cursor, rows: Ints, starts: Ints, lengths: Ints, writer: Primitive | Fixed, reader: Node
) -> pa.Array:
    kind = arrow_of(reader, "")
    if pa.types.is_decimal(kind):
        scale = writer.scale if writer.logical == "decimal" else kind.scale
        return _decimals(cursor, rows, cursor.bytes(starts, lengths), scale, kind)
    if isinstance(writer, Fixed) and writer.logical == "uuid":
        raw = cursor.bytes(starts, lengths).to_pylist()
        return pa.array([str(UUID(bytes=each)) if len(each) == 16 else "" for each in raw], pa.large_string())
    if pa.types.is_string(kind):
        return cursor.texts(rows, starts, lengths)
    return cursor.bytes(starts, lengths)


def _decimals(cursor: Cursor, rows: Ints, raw: pa.Array, scale: int, kind: pa.DataType) -> pa.Array:
    found: list[Decimal | None] = []
    step, most = 10 ** abs(kind.scale - scale), 10**kind.precision
    for each in raw.to_pylist():
        number = int.from_bytes(each, "big", signed=True)
        number, rest = (number * step, 0) if kind.scale >= scale else divmod(number, step)
        found.append(None if rest or abs(number) >= most else Decimal(f"{number}e{-kind.scale}"))
    cursor.report(rows, np.array([each is None for each in found], np.bool_), OUT_OF_RANGE)
    return pa.array(found, kind)


def _arrow_or(reader: Node | None, kind: pa.DataType) -> pa.DataType:
    return kind if reader is None else arrow_of(reader, "")
