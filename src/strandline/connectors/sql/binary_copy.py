"""Encode rows in PostgreSQL's binary COPY format, which the server loads without parsing text.

A row is the number of its values, then for each value its length, -1 for null, and its bytes in big-endian order. All
rows of a slice are encoded at once as a byte matrix; the padding after short texts and nulls is left out.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.formats.sink_columns import Column, Kind, SinkRows
from strandline.model.elements import BEGINNING, END

_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_TRAILER: Final = struct.pack(">h", -1)
_SLICE: Final = 20_000
_LONGEST_TEXT: Final = 256
"""The longest text to encode; longer ones would waste too much padding in the rows with short texts."""

_WITH_ZONE: Final = "timestamp with time zone"
_FIXED: Final[dict[tuple[Kind, str], str]] = {
    (Kind.INTEGER, "bigint"): "i8", (Kind.BOOLEAN, "boolean"): "u1", (Kind.REAL, "double precision"): "f8",
    (Kind.INSTANT, _WITH_ZONE): "i8", (Kind.MOMENT, _WITH_ZONE): "i8",
    (Kind.WALL, "timestamp without time zone"): "i8", (Kind.DATE, "date"): "i4",
}  # fmt: skip
_TEXTS: Final = {(Kind.TEXT, "text"): "", (Kind.BINARY, "bytea"): "", (Kind.JSON, "jsonb"): "\x01"}
"""The prefix before a value's bytes."""
_NUMBERS: Final = {kind: form for (kind, _), form in _FIXED.items()}
_PREFIXES: Final = {kind: before for (kind, _), before in _TEXTS.items()}

_DAY: Final = 86_400_000_000
"""In microseconds."""
_DAYS: Final = 10_957
"""Days from the Unix epoch to PostgreSQL's, 1970 to 2000."""
_MICROSECONDS: Final = _DAYS * _DAY
_FIRST_DAY, _LAST_DAY = -2_440_588, 106_000_000
"""From 4713 BC: the range that both epochs can express, in days and in microseconds."""

_Field = tuple[npt.NDArray[Any], npt.NDArray[np.int32] | np.int32]
"""Values of a column, padded to the widest, and their lengths."""


def has_binary_form(rows: SinkRows, types: Mapping[str, str]) -> bool:
    """Whether all these rows have a binary form that columns of these types read as they would read its text."""
    return all(_has_binary_form(rows.rows[each.name], each.kind, types.get(each.name, "")) for each in rows.columns)


def binary_form(rows: SinkRows) -> Iterator[bytes | memoryview]:
    """Encode the rows in binary form, slice by slice."""
    yield _HEADER
    for part in rows.rows.iter_slices(_SLICE):
        yield _to_bytes([_field(part[column.name], column) for column in rows.columns], part.height)
    yield _TRAILER


def _has_binary_form(values: pl.Series, kind: Kind, declared: str) -> bool:
    if values.null_count() == len(values):
        return True
    if (kind, declared) in _TEXTS:
        lengths = values.str.len_bytes() if values.dtype == pl.String else values.bin.size()
        return bool((lengths < _LONGEST_TEXT).all())
    if (kind, declared) not in _FIXED:
        return False
    match kind:
        case Kind.REAL:
            # A 32-bit float is another number in 64 bits; its text keeps the intended value.
            return values.dtype == pl.Float64
        case Kind.MOMENT | Kind.WALL:
            # The server rounds times finer than microseconds.
            return values.dtype.time_unit != "ns" and _in_range(_microseconds(values), _DAY)  # type: ignore[attr-defined]
        case Kind.INSTANT:
            wide = values.cast(pl.Int64)
            return _in_range(wide.filter((wide != BEGINNING.ms) & (wide != END.ms)), _DAY // 1000)
        case Kind.DATE:
            return _in_range(values.to_physical(), 1)
        case _:
            return True


def _in_range(values: pl.Series, day: int) -> bool:
    return values.is_between(_FIRST_DAY * day, _LAST_DAY * day).all()


def _microseconds(values: pl.Series) -> pl.Series:
    return values.dt.epoch("us")


def _field(values: pl.Series, column: Column) -> _Field:
    rows, nulls = len(values), values.null_count()
    if nulls == rows:
        return np.empty(rows, "V0"), np.int32(-1)
    lengths: npt.NDArray[np.int32] | np.int32
    if values.dtype in (pl.String, pl.Binary):
        items, lengths = _texts(values, _PREFIXES[column.kind])
    else:
        numbers = _numbers(values, column.kind)
        items = (numbers.fill_null(0) if nulls else numbers).to_numpy().astype(_NUMBERS[column.kind], copy=False)
        lengths = np.int32(items.itemsize)
    return items, np.where(values.is_null().to_numpy(), np.int32(-1), lengths) if nulls else lengths


def _numbers(values: pl.Series, kind: Kind) -> pl.Series:
    """Convert values to PostgreSQL's epoch and units."""
    match kind:
        case Kind.BOOLEAN:
            return values.cast(pl.UInt8)
        case Kind.MOMENT | Kind.WALL:
            return _microseconds(values) - _MICROSECONDS
        case Kind.DATE:
            return values.to_physical() - _DAYS
        case Kind.INSTANT:
            first, last = np.iinfo(np.int64).min, np.iinfo(np.int64).max
            wide = values.cast(pl.Int64)
            ends = pl.when(wide == BEGINNING.ms).then(first).when(wide == END.ms).then(last)
            return pl.select(ends.otherwise(wide * 1000 - _MICROSECONDS)).to_series()
        case _:
            return values


def _texts(values: pl.Series, before: str) -> _Field:
    prefixed = (before + values) if before else values
    found = prefixed.fill_null("" if prefixed.dtype == pl.String else b"").cast(pl.Binary).rechunk().to_arrow()
    _, offsets, content = found.buffers()
    starts = np.frombuffer(offsets, np.int64)[found.offset : found.offset + len(found) + 1]
    lengths = np.diff(starts).astype(np.int32)
    widest = max(int(lengths.max()), 1)
    # Padding lets the last text be read to the width of the longest.
    letters = np.concatenate([np.frombuffer(content or b"", np.uint8), np.zeros(widest, np.uint8)])
    return letters[starts[:-1, None] + np.arange(widest)].view(f"V{widest}").reshape(-1), lengths


def _to_bytes(fields: list[_Field], rows: int) -> memoryview:
    width = 2 + sum(4 + items.itemsize for items, _ in fields)
    whole = np.empty((rows, width), np.uint8)
    counted: npt.NDArray[np.bool_] | None = None

    def column(at: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        return np.ndarray((rows,), kind, whole, at, (width,))

    column(0, ">i2")[...] = len(fields)
    at = 2
    for items, lengths in fields:
        column(at, ">i4")[...] = lengths
        at, wide = at + 4, items.itemsize
        column(at, items.dtype.newbyteorder(">"))[...] = items
        if isinstance(lengths, np.ndarray) and (lengths != wide).any():
            counted = np.ones((rows, width), np.bool_) if counted is None else counted
            counted[:, at : at + wide] = np.arange(wide) < lengths[:, None]
        at += wide
    return (whole.reshape(-1) if counted is None else whole[counted]).data
