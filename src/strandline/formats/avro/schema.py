"""Parse Avro schemas from JSON into values with resolved names, and map them to Arrow types."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from strandline.errors import InvalidSchema

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NO_DEFAULT: Final = object()
_DEEPEST: Final = 64
_LARGEST: Final = 2**20
_DIGITS: Final = 38
_MOST_TYPES: Final = 100_000
_MOST_BRANCHES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Primitive:
    """null, boolean, int, long, float, double, bytes or string, with its logical type."""

    name: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed number of bytes."""

    name: str
    size: int
    aliases: tuple[str, ...] = ()
    logical: str | None = None
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Enum:
    """One of several symbols."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Array:
    """A list of values."""

    items: "Node"


@dataclass(frozen=True, slots=True)
class Map:
    """Values by string keys."""

    values: "Node"


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types."""

    branches: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record; its default is NO_DEFAULT if it must be written."""

    name: str
    type: "Node"
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class Record:
    """Fields in order. Compared by identity, since a record may contain itself."""

    name: str
    aliases: tuple[str, ...] = ()
    fields: list[Field] = field(default_factory=list)
    _by_name: dict[str, Field] = field(default_factory=dict, repr=False)

    def named(self, name: str) -> Field | None:
        """Return the field of this name."""
        for each in self.fields[len(self._by_name) :]:
            self._by_name[each.name] = each
        return self._by_name.get(name)


Node = Primitive | Fixed | Enum | Array | Map | Union | Record
NULL: Final = Primitive("null")


def parse_avro(text: str, uses: Mapping[str, str] | None = None) -> Node:
    """Parse a schema; `uses` holds the texts of the schemas that it refers to, innermost first."""
    names: dict[str, Node] = {}
    for used in (uses or {}).values():
        _parse(_json(used), "", names, 0)
    found = _parse(_json(text), "", names, 0)
    _extent(found, {})
    return found


def _extent(node: Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the size and depth of a schema with its named types written out at each use; refuse one beyond the limits.

    A few hundred types that name each other twice would write out to more than any memory holds.
    """
    if id(node) in known:
        return known[id(node)]
    parts: list[Node] = []
    match node:
        case Primitive() | Fixed() | Enum():
            return 1, 1
        case Array(inner) | Map(inner):
            parts = [inner]
        case Union(branches):
            parts = [*branches]
        case Record(fields=fields):
            known[id(node)] = (1, 1)  # a record that contains itself ends there
            parts = [each.type for each in fields]
    extents = [_extent(each, known) for each in parts]
    size, depth = 1 + sum(size for size, _ in extents), 1 + max((depth for _, depth in extents), default=0)
    if size > _MOST_TYPES or depth > 2 * _DEEPEST:
        raise InvalidSchema(
            "the Avro schema is too large when its named types are written out",
            detail=f"{size} types, {depth} deep",
            hint=f"at most {_MOST_TYPES} types, {2 * _DEEPEST} deep, are read",
        )
    known[id(node)] = (size, depth)
    return size, depth


def record_of(node: Node) -> Record:
    """Return a schema whose fields can be columns; raise an error if it is not a record."""
    if not isinstance(node, Record):
        raise InvalidSchema("the Avro schema is not a record", hint="use a record: its fields become columns")
    return node


def columns_of(record: Record) -> pa.Schema:
    """Convert a record's fields to columns."""
    return pa.schema([pa.field(each.name, arrow_of(each.type, each.name)) for each in record.fields])


def arrow_of(node: Node, place: str, above: tuple[Record, ...] = ()) -> pa.DataType:
    """The Arrow type of a column with values of this type."""
    match node:
        case Primitive() | Fixed():
            return _plain(node)
        case Enum():
            return pa.string()
        case Array(items):
            return pa.list_(arrow_of(items, place, above))
        case Map(values):
            return pa.map_(pa.string(), arrow_of(values, place, above))
        case Record():
            if node in above:
                raise InvalidSchema(f"the field {place} contains itself", hint="use a type that is not recursive")
            inner = (*above, node)
            return pa.struct([(f.name, arrow_of(f.type, f"{place}.{f.name}", inner)) for f in node.fields])
        case Union():
            real = optional(node)
            if real is None:
                raise InvalidSchema(
                    f"the field {place} is a union of several types",
                    hint="a column has one type: read it with a schema, or with DDL, that names one",
                )
            return arrow_of(real, place, above)


def optional(node: Union) -> Node | None:
    """The type of a union of null and one type; None if there are several."""
    real = [each for each in node.branches if each != NULL]
    return real[0] if len(real) == 1 else NULL if not real else None


def _plain(node: Primitive | Fixed) -> pa.DataType:
    logical = node.logical
    if logical == "decimal":
        return pa.decimal128(node.precision, node.scale)
    if logical == "uuid":
        return pa.string()
    if isinstance(node, Fixed):
        return pa.binary()
    if logical == "date":
        return pa.date32()
    if logical is not None and "timestamp" in logical:
        return pa.timestamp("us", tz="UTC")
    return _ARROW[node.name]


_ARROW: Final[dict[str, pa.DataType]] = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    "date": ("int",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "uuid": ("string",),
    "decimal": ("bytes",),
}


def _json(text: str) -> Any:
    if len(text) > _LARGEST:
        raise InvalidSchema(f"an Avro schema of {len(text)} characters", hint=f"at most {_LARGEST} are read")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise InvalidSchema("the Avro schema is not JSON", detail=text[:80]) from None


def _parse(node: Any, space: str, names: dict[str, Node], depth: int) -> Node:
    if depth > _DEEPEST:
        raise InvalidSchema(f"an Avro schema nested more than {_DEEPEST} deep")
    if isinstance(node, str):
        return _named(node, space, names)
    if isinstance(node, list):
        return _union([_parse(each, space, names, depth + 1) for each in node])
    if not isinstance(node, dict) or "type" not in node:
        raise InvalidSchema("an Avro type is a name, a list or an object with a type", detail=repr(node)[:80])
    kind = node["type"]
    match kind:
        case "record" | "error":
            return _record(node, space, names, depth)
        case "enum":
            return _enum(node, space, names)
        case "fixed":
            return _fixed(node, space, names)
        case "array":
            return Array(_parse(_required(node, "items"), space, names, depth + 1))
        case "map":
            return Map(_parse(_required(node, "values"), space, names, depth + 1))
    inner = _parse(kind, space, names, depth + 1)
    return _logical(inner, node) if isinstance(inner, Primitive) else inner


def _named(name: str, space: str, names: Mapping[str, Node]) -> Node:
    if name in PRIMITIVES:
        return Primitive(name)
    for candidate in (_full(name, space), name):
        if candidate in names:
            return names[candidate]
    raise InvalidSchema(f"the Avro schema uses {name!r}, which it does not define", hint="is a reference missing?")


def _union(branches: list[Node]) -> Union:
    if len(branches) > _MOST_BRANCHES:
        raise InvalidSchema(f"an Avro union of {len(branches)} types", hint=f"at most {_MOST_BRANCHES} are read")
    kinds = [str(getattr(each, "name", type(each).__name__)) for each in branches]
    if len(set(kinds)) != len(kinds) or any(isinstance(each, Union) for each in branches):
        raise InvalidSchema("an Avro union names a type twice, or holds a union", detail=", ".join(kinds))
    return Union(tuple(branches))


def _record(node: Mapping[str, Any], space: str, names: dict[str, Node], depth: int) -> Record:
    name, inner = _name(node, space)
    record = Record(name, _aliases(node, inner))
    _define(name, record, names)
    for each in _required(node, "fields", list):
        if not isinstance(each, dict):
            raise InvalidSchema(f"a field of the record {name} is not an object", detail=repr(each)[:80])
        field_name = _required(each, "name", str)
        if record.named(field_name) is not None:
            raise InvalidSchema(f"the record {name} has two fields {field_name!r}")
        kind = _parse(_required(each, "type"), inner, names, depth + 1)
        aliases = tuple(str(alias) for alias in each.get("aliases") or ())
        record.fields.append(Field(field_name, kind, each.get("default", NO_DEFAULT), aliases))
    return record


def _enum(node: Mapping[str, Any], space: str, names: dict[str, Node]) -> Enum:
    name, inner = _name(node, space)
    symbols = tuple(str(each) for each in _required(node, "symbols", list))
    if len(set(symbols)) != len(symbols):
        raise InvalidSchema(f"the enum {name} names a symbol twice")
    default = node.get("default")
    if default is not None and default not in symbols:
        raise InvalidSchema(f"the default of the enum {name} is not one of its symbols")
    enum = Enum(name, symbols, default, _aliases(node, inner))
    _define(name, enum, names)
    return enum


def _fixed(node: Mapping[str, Any], space: str, names: dict[str, Node]) -> Fixed:
    name, inner = _name(node, space)
    size = _required(node, "size", int)
    if not 0 <= size <= _LARGEST:
        raise InvalidSchema(f"the fixed {name} has a size of {size}")
    logical, precision, scale = node.get("logicalType"), 0, 0
    if logical == "decimal" and (digits := _digits(node)):
        precision, scale = digits
    elif not (logical == "uuid" and size == 16):
        logical = None
    fixed = Fixed(name, size, _aliases(node, inner), logical, precision, scale)
    _define(name, fixed, names)
    return fixed


def _logical(plain: Primitive, node: Mapping[str, Any]) -> Primitive:
    """Apply a logical type; ignore one that does not fit its type, as the specification requires."""
    logical = node.get("logicalType")
    if not isinstance(logical, str) or plain.name not in _LOGICAL.get(logical, ()):
        return plain
    if logical != "decimal":
        return Primitive(plain.name, logical)
    digits = _digits(node)
    return Primitive(plain.name, logical, *digits) if digits else plain


def _digits(node: Mapping[str, Any]) -> tuple[int, int] | None:
    precision, scale = node.get("precision"), node.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    return (precision, scale) if 0 <= scale <= precision <= _DIGITS and precision else None


def _define(name: str, node: Node, names: dict[str, Node]) -> None:
    if name in names:
        raise InvalidSchema(f"the Avro schema defines {name!r} twice")
    names[name] = node


def _name(node: Mapping[str, Any], space: str) -> tuple[str, str]:
    """A type's full name, and the namespace for the names inside it."""
    full = _full(_required(node, "name", str), node.get("namespace", space) or "")
    return full, full.rpartition(".")[0]


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _aliases(node: Mapping[str, Any], space: str) -> tuple[str, ...]:
    return tuple(_full(str(each), space) for each in node.get("aliases") or ())


def _required(node: Mapping[str, Any], key: str, kind: type = object) -> Any:
    if key not in node or not isinstance(node[key], kind):
        raise InvalidSchema(f"an Avro {node.get('type', 'field')} without its {key}", detail=repr(node)[:80])
    return node[key]
