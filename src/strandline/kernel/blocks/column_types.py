"""Map DDL type names to Arrow and Polars types.

PyArrow takes 25 MB, so it is imported at the first call: the dashboard reads dead letters through this module and
never calls it.
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
"""Range of timestamps that calendars support, in milliseconds."""
_DECIMAL: Final = re.compile(r"decimal\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)", re.IGNORECASE)
_INSIDE: Final = re.compile(r"(array|map|struct)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_DIGITS, _DEEPEST = 38, 32


@cache
def scalars() -> "Mapping[str, pa.DataType]":
    """Return the scalar types by DDL name. Where two names mean one type, the first is the canonical one."""
    import pyarrow as pa  # noqa: PLC0415

    return dict(zip(SCALARS, (
        pa.string(), pa.int64(), pa.int64(), pa.int32(), pa.float64(), pa.bool_(), pa.timestamp("us", tz="UTC"),
        pa.float32(), pa.date32(), pa.binary(),
        pa.int32(), pa.int8(), pa.int8(), pa.int16(), pa.int16(), pa.timestamp("us"),
    ), strict=True))  # fmt: skip


def to_arrow(kind: str, depth: int = 0) -> "pa.DataType | None":
    """Convert a DDL type to Arrow; None if there is no such type."""
    import pyarrow as pa  # noqa: PLC0415

    if kind.lower() in scalars():
        return scalars()[kind.lower()]
    if found := _DECIMAL.fullmatch(kind):
        digits, after = int(found[1]), int(found[2])
        return pa.decimal128(digits, after) if 0 < digits <= _DIGITS and after <= digits else None
    inside = _INSIDE.fullmatch(kind)
    if inside is None or depth > _DEEPEST:
        return None
    inner = parts(inside[2])
    match inside[1].lower():
        case "array" if len(inner) == 1:
            item = to_arrow(inner[0].strip(), depth + 1)
            return None if item is None else pa.list_(item)
        case "map" if len(inner) == 2:
            key, item = (to_arrow(part.strip(), depth + 1) for part in inner)
            return pa.map_(key, item) if key == pa.string() and item is not None else None
        case "struct":
            return _struct(inner, depth)
    return None


def _struct(members: list[str], depth: int) -> "pa.DataType | None":
    import pyarrow as pa  # noqa: PLC0415

    fields: list[pa.Field] = []
    for part in members:
        name, _, kind = part.partition(":")
        found = to_arrow(kind.strip(), depth + 1)
        if found is None or not name.strip() or name.strip() in {field.name for field in fields}:
            return None
        fields.append(pa.field(name.strip(), found))
    return pa.struct(fields)


def to_polars(kind: str) -> pl.DataType:
    """Convert a DDL type to Polars."""
    import pyarrow as pa  # noqa: PLC0415

    found = to_arrow(kind)
    if found is None:
        raise Unsupported(f"a column of type {kind!r}", hint=HINT)
    return pl.Schema(pa.schema([("of", found)]))["of"]
