"""Convert rows to types that every reader has, and read and write them as Parquet, JSON lines or CSV."""

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.errors import StateError
from strandline.formats.sink_columns import Column, Kind, named, plain
from strandline.kernel.blocks.column_types import to_polars

VOID: Final = "void"
"""The type of a column that has held only nulls so far."""
FORMATS: Final = ("parquet", "jsonl", "csv")
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The first and last millisecond of the years 1 to 9999; they replace the ends of time, which no format can express."""

_MOMENT: Final = pl.Datetime("us", "UTC")
_WALL: Final = pl.Datetime("us")
_TEXTS: Final = {_MOMENT: "%Y-%m-%dT%H:%M:%S%.6fZ", _WALL: "%Y-%m-%dT%H:%M:%S%.6f"}
_WORDS: Final[dict[Any, str]] = {
    pl.String: "string", pl.Int64: "long", pl.Int32: "int", pl.Int16: "short", pl.Int8: "byte", pl.Float64: "double",
    pl.Float32: "float", pl.Boolean: "boolean", pl.Binary: "binary", pl.Date: "date", _MOMENT: "timestamp",
    _WALL: "timestamp_ntz", pl.Null: VOID,
}  # fmt: skip
_SIGNS: Final = frozenset(":,<>`() ")


def to_public_columns(frame: pl.DataFrame, batch: int) -> pl.DataFrame:
    """Rename columns to their public names, and convert values to types that DDL has."""
    sink_rows = named(frame, batch)
    return pl.DataFrame([_typed(sink_rows.rows[each.name], each) for each in sink_rows.columns])


def types_of(frame: pl.DataFrame) -> dict[str, str]:
    """Each column's type in DDL."""
    return {name: word_of(kind) or "string" for name, kind in frame.schema.items()}


def merge_columns(known: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Merge two sets of columns; a column of only nulls gets its type from the first value."""
    return {**known, **{name: kind for name, kind in new.items() if known.get(name, VOID) == VOID}}


def kinds_of(types: Mapping[str, str]) -> dict[str, Any]:
    """Each column's Polars type."""
    return {name: pl.Null() if word == VOID else to_polars(word) for name, word in types.items()}


def word_of(kind: Any) -> str | None:
    """A type in DDL; None if DDL has none for it."""
    if isinstance(kind, pl.Decimal):
        return f"decimal({kind.precision or 38}, {kind.scale})"
    if isinstance(kind, pl.List):
        inner = word_of(kind.inner)
        return None if inner in (None, VOID) else f"array<{inner}>"
    if isinstance(kind, pl.Struct):
        fields = [(field.name, word_of(field.dtype)) for field in kind.fields]
        if not fields or any(inner in (None, VOID) or not name or _SIGNS & set(name) for name, inner in fields):
            return None
        return f"struct<{', '.join(f'{name}: {inner}' for name, inner in fields)}>"
    return next((word for known, word in _WORDS.items() if kind == known), None)


def encode_file(rows: pl.DataFrame, form: str) -> bytes:
    """Encode rows as a file's bytes; columns of only nulls are left out, since no format has a type for them."""
    rows = rows.select(name for name, kind in rows.schema.items() if kind != pl.Null)
    if form == "parquet":
        file = io.BytesIO()
        rows.write_parquet(file)
        return file.getvalue()
    return as_texts(rows, form).write_csv().encode() if form == "csv" else _lines(as_texts(rows, form))


def as_texts(rows: pl.DataFrame, form: str = "csv") -> pl.DataFrame:
    """Convert times, bytes and decimals to text; for CSV also nested values."""
    return rows.with_columns(_as_text(name, kind, form) for name, kind in rows.schema.items())


def decode_file(path: Path, types: Mapping[str, str]) -> pl.DataFrame:
    """Read a file's rows in their original types; a column that the file lacks is null."""
    kinds = kinds_of(types)
    try:
        match path.suffix:
            case ".parquet":
                found = pl.read_parquet(path)
                return found.select(_column_of(found, name, kind) for name, kind in kinds.items())
            case ".csv":
                with path.open(newline="", encoding="utf-8") as file:
                    header = next(csv.reader(file))
                found = pl.read_csv(path, infer_schema=False, new_columns=header)
            case _:
                schema = {name: _told(kind) for name, kind in kinds.items()}
                found = pl.read_ndjson(path, schema=schema)
        form = path.suffix[1:]
        return found.select(_from_text(found, name, kind, form) for name, kind in kinds.items())
    except pl.exceptions.PolarsError as problem:
        raise StateError(f"{path} cannot be read", detail=str(problem)[:200], hint="restore it from a copy") from None


def _typed(values: pl.Series, column: Column) -> pl.Series:
    match column.kind:
        case Kind.INSTANT:
            return (values.cast(pl.Int64).clip(FIRST_MS, LAST_MS) * 1000).cast(_MOMENT)
        case Kind.MOMENT:
            return values.dt.convert_time_zone("UTC").cast(_MOMENT)
        case Kind.WALL:
            return values.cast(_WALL)
        case Kind.UNKNOWN:
            return values
        case Kind.TIME:
            return values.cast(pl.String)
        case Kind.WIDE:
            return values.cast(pl.Decimal(38, 0))
        case Kind.INTEGER if not values.dtype.is_signed_integer():
            return plain(values, column.kind).cast(pl.Int64)
        case Kind.JSON if word_of(values.dtype) is not None:
            return values
        case _:
            return plain(values, column.kind)


def _as_text(name: str, kind: Any, form: str) -> pl.Expr:
    values = pl.col(name)
    if kind in _TEXTS:
        return values.dt.to_string(_TEXTS[kind])
    if kind == pl.Binary:
        return values.bin.encode("base64")
    if kind == pl.Date or isinstance(kind, pl.Decimal):
        return values.cast(pl.String)
    if kind.is_nested() and form == "csv":
        return values.map_batches(lambda values: plain(values, Kind.JSON), return_dtype=pl.String)
    return values


def _lines(rows: pl.DataFrame) -> bytes:
    """Encode JSON lines. Non-finite numbers, which JSON cannot express, become text that number parsers accept."""
    reals = [name for name, kind in rows.schema.items() if kind.is_float()]
    if reals and rows.select(pl.any_horizontal((~pl.col(reals).is_finite()).any())).item():
        return b"".join(
            json.dumps({name: _finite(cell) for name, cell in row.items()}, ensure_ascii=False).encode() + b"\n"
            for row in rows.iter_rows(named=True)
        )
    file = io.BytesIO()
    rows.write_ndjson(file)
    return file.getvalue()


def _finite(cell: Any) -> Any:
    if not isinstance(cell, float) or math.isfinite(cell):
        return cell
    return "NaN" if math.isnan(cell) else "Infinity" if cell > 0 else "-Infinity"


def _told(kind: Any) -> Any:
    """The type of a column in JSON lines."""
    return kind if kind.is_nested() or kind.is_integer() or kind == pl.Boolean else pl.String


def _column_of(found: pl.DataFrame, name: str, kind: Any) -> pl.Expr:
    return (pl.col(name) if name in found.columns else pl.lit(None)).cast(kind).alias(name)


def _from_text(found: pl.DataFrame, name: str, kind: Any, form: str) -> pl.Expr:
    values = pl.col(name)
    if name not in found.columns:
        return pl.lit(None).cast(kind).alias(name)
    if kind in _TEXTS:
        return values.str.to_datetime(_TEXTS[kind], time_unit="us", time_zone=getattr(kind, "time_zone", None))
    if kind == pl.Binary:
        return values.str.decode("base64")
    if kind == pl.Date:
        return values.str.to_date("%Y-%m-%d")
    if kind == pl.Boolean and form == "csv":
        return values == "true"
    if kind.is_nested() and form == "csv":
        return values.str.json_decode(kind)
    return values.cast(kind)
