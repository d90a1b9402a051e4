"""Convert DDL to an Avro schema, to write with it or to read data of another schema."""

import json
from typing import Any, Final

import pyarrow as pa

from strandline.errors import InvalidSchema
from strandline.formats.avro.schema import (
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
    optional,
)
from strandline.formats.schema import ddl_of

_AVRO_TYPES: Final[dict[str, Any]] = {
    "string": "string",
    "long": "long",
    "int": "int",
    "double": "double",
    "float": "float",
    "boolean": "boolean",
    "binary": "bytes",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
}


def avro_of(columns: pa.Schema, name: str = "Row") -> str:
    """Return an Avro schema for these columns; each field may be null, as a column may."""
    fields = [_field(field.name, field.type, f"{name}_{field.name}") for field in columns]
    return json.dumps({"type": "record", "name": name, "fields": fields})


def reader_for(columns: pa.Schema, writer: Record) -> Record:
    """Return the schema that reads these columns from data of this writer's schema.

    Where DDL has one type for two types of Avro, the writer's is used: an enum is a string, a fixed is binary.
    """
    return Record(writer.name, (), [_reader_field(field, _writer_type(writer, field.name)) for field in columns])


def _field(name: str, kind: pa.DataType, inner: str) -> dict[str, Any]:
    return {"name": name, "type": ["null", _avro_type(kind, inner)], "default": None}


def _avro_type(kind: pa.DataType, name: str) -> Any:
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_map(kind):
        return {"type": "map", "values": ["null", _avro_type(kind.item_type, name)]}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _avro_type(kind.value_type, name)]}
    if pa.types.is_struct(kind):
        fields = [_field(field.name, field.type, f"{name}_{field.name}") for field in kind]
        return {"type": "record", "name": name, "fields": fields}
    return _AVRO_TYPES[ddl_of(kind)]


def _writer_type(writer: Record, name: str) -> Node | None:
    field = writer.named(name)
    found = None if field is None else field.type
    return optional(found) or found if isinstance(found, Union) else found


def _reader_field(field: pa.Field, written: Node | None) -> Field:
    return Field(field.name, Union((NULL, _node(field.type, written))), None)


def _node(kind: pa.DataType, written: Node | None) -> Node:
    if isinstance(written, Union):
        written = optional(written)
    if isinstance(written, Enum) and pa.types.is_string(kind):
        return written
    if isinstance(written, Fixed):
        if pa.types.is_binary(kind) and written.logical is None:
            return written
        if pa.types.is_decimal(kind) or (pa.types.is_string(kind) and written.logical == "uuid"):
            return Fixed(written.name, written.size, (), *_logic(written, kind))
    if pa.types.is_map(kind):
        inner = written.values if isinstance(written, Map) else None
        return Map(Union((NULL, _node(kind.item_type, inner))))
    if pa.types.is_list(kind):
        inner = written.items if isinstance(written, Array) else None
        return Array(Union((NULL, _node(kind.value_type, inner))))
    if pa.types.is_struct(kind):
        if isinstance(written, Record):
            return reader_for(pa.schema(list(kind)), written)
        return Record("struct", (), [_reader_field(field, None) for field in kind])
    return _primitive(kind)


def _logic(written: Fixed, kind: pa.DataType) -> tuple[str, int, int]:
    return ("decimal", kind.precision, kind.scale) if pa.types.is_decimal(kind) else (str(written.logical), 0, 0)


def _primitive(kind: pa.DataType) -> Primitive:
    if pa.types.is_decimal(kind):
        return Primitive("bytes", "decimal", kind.precision, kind.scale)
    avro_type = _AVRO_TYPES.get(ddl_of(kind))
    if avro_type is None:
        raise InvalidSchema(f"Avro has no type for {kind}")
    return (
        Primitive(avro_type) if isinstance(avro_type, str) else Primitive(avro_type["type"], avro_type["logicalType"])
    )
