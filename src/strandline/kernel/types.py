"""Types as DDL writes them, and what they are in Polars."""

import re
from typing import Final

import polars as pl

from strandline.errors import Unsupported

_SCALARS: Final[dict[str, pl.DataType]] = {
    "string": pl.String(), "binary": pl.Binary(), "boolean": pl.Boolean(),
    "byte": pl.Int8(), "tinyint": pl.Int8(), "short": pl.Int16(), "smallint": pl.Int16(),
    "int": pl.Int32(), "integer": pl.Int32(), "long": pl.Int64(), "bigint": pl.Int64(),
    "float": pl.Float32(), "double": pl.Float64(), "date": pl.Date(),
    "timestamp": pl.Datetime("us", "UTC"), "timestamp_ntz": pl.Datetime("us"),
}  # fmt: skip


def to_polars(kind: str) -> pl.DataType:
    """The type that values of a column have in a frame."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    if listed := re.fullmatch(r"array<(.+)>", kind):
        return pl.List(to_polars(listed[1].strip()))
    if decimal := re.fullmatch(r"decimal\((\d+) ?, ?(\d+)\)", kind):
        return pl.Decimal(int(decimal[1]), int(decimal[2]))
    known = ", ".join(_SCALARS)
    raise Unsupported(f"a column of type {kind!r}", hint=f"choose one of {known}, array<…> or decimal(p, s)")
