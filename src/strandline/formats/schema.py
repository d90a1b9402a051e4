"""Column types as Spark's DDL writes them, what they are in Arrow, and back."""

import re
from typing import Final

import pyarrow as pa

from strandline.errors import InvalidStep

TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "float": pa.float32(),
    "date": pa.date32(),
    "binary": pa.binary(),
}
_NESTED: Final = "decimal(p, s), array<…>, map<string, …>, struct<name: type, …>"
_DECIMAL: Final = re.compile(r"decimal\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)", re.IGNORECASE)
_INSIDE: Final = re.compile(r"(array|map|struct)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_DIGITS, _DEEPEST = 38, 32


def parse_ddl(text: str) -> pa.Schema:
    """The schema in `team string, score long, at timestamp`."""
    fields: list[pa.Field] = []
    for part in _parts(text):
        name, _, kind = part.strip().replace("\n", " ").replace("\t", " ").partition(" ")
        found = _type(kind.strip())
        if found is None:
            raise InvalidStep(
                f"cannot read the column {part.strip()!r}",
                hint=f"write a name and a type, one of {', '.join(TYPES)}, {_NESTED}; columns are separated by commas",
            )
        if name.startswith("@"):
            raise InvalidStep(f"the column {name!r} starts with @", hint="those names are Strandline's own")
        if any(field.name == name for field in fields):
            raise InvalidStep(f"two columns are called {name!r}", hint="give each a name of its own")
        fields.append(pa.field(name, found))
    return pa.schema(fields)


def to_ddl(schema: pa.Schema) -> str:
    """`team string, score long`: what parse_ddl reads."""
    return ", ".join(f"{name} {kind}" for name, kind in types_of(schema).items())


def types_of(schema: pa.Schema) -> dict[str, str]:
    """Each column's type as DDL writes it."""
    return {field.name: ddl_of(field.type) for field in schema}


def ddl_of(kind: pa.DataType) -> str:
    """One type as DDL writes it."""
    for name, found in TYPES.items():
        if kind == found:
            return name
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_map(kind):
        return f"map<{ddl_of(kind.key_type)}, {ddl_of(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{ddl_of(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {ddl_of(field.type)}' for field in kind)}>"
    raise InvalidStep(f"there is no word for the type {kind}", hint=f"there are {', '.join(TYPES)}, {_NESTED}")


def _type(text: str, depth: int = 0) -> pa.DataType | None:
    if text.lower() in TYPES:
        return TYPES[text.lower()]
    if found := _DECIMAL.fullmatch(text):
        digits, after = int(found[1]), int(found[2])
        return pa.decimal128(digits, after) if 0 < digits <= _DIGITS and after <= digits else None
    inside = _INSIDE.fullmatch(text)
    if inside is None or depth > _DEEPEST:
        return None
    parts = _parts(inside[2])
    match inside[1].lower():
        case "array" if len(parts) == 1:
            item = _type(parts[0].strip(), depth + 1)
            return None if item is None else pa.list_(item)
        case "map" if len(parts) == 2:
            key, item = (_type(part.strip(), depth + 1) for part in parts)
            return pa.map_(key, item) if key == pa.string() and item is not None else None
        case "struct":
            return _struct(parts, depth)
    return None


def _struct(parts: list[str], depth: int) -> pa.DataType | None:
    fields: list[pa.Field] = []
    for part in parts:
        name, _, kind = part.partition(":")
        found = _type(kind.strip(), depth + 1)
        if found is None or not name.strip() or name.strip() in {field.name for field in fields}:
            return None
        fields.append(pa.field(name.strip(), found))
    return pa.struct(fields)


def _parts(text: str) -> list[str]:
    """Cut at the commas that are in no brackets."""
    parts, start, depth = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]
