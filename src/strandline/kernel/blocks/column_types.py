"""Types as DDL writes them, and what they are in Arrow and in Polars.

Arrow takes 25 MB and is loaded with the first question: a dashboard, which also reads dead letters, asks none.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

import polars as pl

from strandline.errors import Unsupported
from strandline.model.ddl import HINT, SCALARS, parts

if TYPE_CHECKING:
    import pyarrow as pa

YEAR_ONE, YEAR_TEN_THOUSAND = -62_135_596_800_000, 253_402_300_800_000
"""Where calendars begin and end, in milliseconds."""
_DECIMAL: Final = re.compile(r"decimal\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)", re.IGNORECASE)
_INSIDE: Final = re.compile(r"(array|map|struct)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_DIGITS, _DEEPEST = 38, 32


@cache
def scalars() -> "Mapping[str, pa.DataType]":
    """The types of single values. Where two words mean one type, the first is the one that it is told by."""
    import pyarrow as pa  # noqa: PLC0415

    return dict(zip(SCALARS, (
        pa.string(), pa.int64(), pa.int64(), pa.int32(), pa.float64(), pa.bool_(), pa.timestamp("us", tz="UTC"),
        pa.float32(), pa.date32(), pa.binary(),
        pa.int32(), pa.int8(), pa.int8(), pa.int16(), pa.int16(), pa.timestamp("us"),
    ), strict=True))  # fmt: skip


def to_arrow(kind: str, depth: int = 0) -> "pa.DataType | None":
    """A type in Arrow; None if there is no such type."""
    import pyarrow as pa  # noqa: PLC0415

    if kind.lower() in scalars():
        return scalars()[kind.lower()]
    if found := _DECIMAL.fullmatch(kind):
        digits, after = int(found[1]), int(found[2])
        return pa.decimal128(digits, after) if 0 < digits <= _DIGITS and after <= digits else None
    inside = _INSIDE.fullmatch(kind)
    if inside is None or depth > _DEEPEST:
        return None
    held = parts(inside[2])
    match inside[1].lower():
        case "array" if len(held) == 1:
            item = to_arrow(held[0].strip(), depth + 1)
            return None if item is None else pa.list_(item)
        case "map" if len(held) == 2:
            key, item = (to_arrow(part.strip(), depth + 1) for part in held)
            return pa.map_(key, item) if key == pa.string() and item is not None else None
        case "struct":
            return _struct(held, depth)
    return None


def _struct(held: list[str], depth: int) -> "pa.DataType | None":
    import pyarrow as pa  # noqa: PLC0415

    fields: list[pa.Field] = []
    for part in held:
        name, _, kind = part.partition(":")
        found = to_arrow(kind.strip(), depth + 1)
        if found is None or not name.strip() or name.strip() in {field.name for field in fields}:
            return None
        fields.append(pa.field(name.strip(), found))
    return pa.struct(fields)


def to_polars(kind: str) -> pl.DataType:
    """The type that values of a column have in a frame."""
    import pyarrow as pa  # noqa: PLC0415

    found = to_arrow(kind)
    if found is None:
        raise Unsupported(f"a column of type {kind!r}", hint=HINT)
    return pl.Schema(pa.schema([("of", found)]))["of"]
