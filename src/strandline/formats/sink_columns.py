"""Convert rows for sinks: our columns under public names, and the kind of each column's values."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import polars as pl

from strandline.errors import Unsupported
from strandline.kernel import dead_letters
from strandline.kernel.blocks.block import AT, END, OFFSET, OWN, PARTITION, START
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.blocks.python_values import python_values, text_in_json
from strandline.kernel.step import PARTIAL, WATERMARK
from strandline.kernel.window.panes import FIRST, INDEX, LAST, NONSPECULATIVE, RETRACTION, TIMESTAMP, TIMING
from strandline.ports.codecs import REASON

BATCH: Final = "@batch"
"""The batch that delivered a row."""
NEWEST: Final = "@newest"

NAMES: Final = {
    START: "window_start", END: "window_end", TIMING: "timing", INDEX: "pane_index",
    NONSPECULATIVE: "nonspeculative_index", FIRST: "is_first", LAST: "is_last", TIMESTAMP: "pane_time",
    RETRACTION: "retraction", AT: "event_time", PARTITION: "source_partition", OFFSET: "source_offset",
    REASON: "reason", WATERMARK: "watermark", PARTIAL: "partial", BATCH: "batch", **dead_letters.NAMES,
    NEWEST: "newest",
}  # fmt: skip
"""Public names of our columns; a `_` is appended if a user's column has the same name."""

_INSTANTS: Final = (START, END, TIMESTAMP, AT, WATERMARK, dead_letters.SEEN)


class Kind(StrEnum):
    """Kind of a column's values, as far as databases distinguish it."""

    INTEGER = "integer"
    WIDE = "wide integer"
    REAL = "real"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    TEXT = "text"
    BINARY = "binary"
    INSTANT = "instant"
    """Milliseconds, or one of the two ends of time."""
    MOMENT = "moment"
    """A time with a zone."""
    WALL = "wall-clock time"
    DATE = "date"
    TIME = "time of day"
    JSON = "json"
    UNKNOWN = "unknown"
    """Only nulls so far."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's public name and kind; for a decimal the number of digits, in all and after the point."""

    name: str
    kind: Kind
    digits: tuple[int, int] = (38, 0)


@dataclass(frozen=True, slots=True)
class SinkRows:
    """Rows, with the columns that a table needs for them."""

    rows: pl.DataFrame
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def only(self, rows: pl.DataFrame, names: Iterable[str] | None = None) -> "SinkRows":
        """Replace the rows, and optionally select columns."""
        wanted = set(self.names if names is None else names)
        columns = tuple(column for column in self.columns if column.name in wanted)
        return SinkRows(rows.select(column.name for column in columns), columns)


def to_sink_rows(frame: pl.DataFrame, batch: int) -> SinkRows:
    """Rename columns to their public names, add the batch, and convert nested values to JSON."""
    renamed = named(frame, batch)
    return SinkRows(
        pl.DataFrame([plain(renamed.rows[each.name], each.kind) for each in renamed.columns]), renamed.columns
    )


def named(frame: pl.DataFrame, batch: int) -> SinkRows:
    """Rename columns to their public names and add the batch; values stay as they are."""
    public = names_beside(frame.columns)
    shown = frame.with_columns(pl.lit(batch, pl.Int64).alias(BATCH)).rename(public, strict=False)
    instants = {public[name] for name in _INSTANTS if name in frame.columns}
    return SinkRows(shown, tuple(_column(name, kind, name in instants) for name, kind in shown.schema.items()))


def names_beside(columns: Iterable[str]) -> dict[str, str]:
    """Choose public names that do not clash with user columns, ignoring case as many databases do."""
    taken = {name.lower() for name in columns if not name.startswith(OWN)}
    names = {}
    for own, name in NAMES.items():
        candidate = name
        while candidate in taken:
            candidate += "_"
        names[own] = candidate
    return names


def declared_column(name: str, kind: str) -> Column | None:
    """Return the column that values of a DDL type need; None if only values show it."""
    try:
        return _column(name, to_polars(kind), instant=False)
    except Unsupported:
        return None


_KINDS: Final[tuple[tuple[Any, Kind], ...]] = (
    (pl.Boolean, Kind.BOOLEAN), (pl.String, Kind.TEXT), (pl.Categorical, Kind.TEXT), (pl.Enum, Kind.TEXT),
    (pl.Binary, Kind.BINARY), (pl.Date, Kind.DATE), (pl.Time, Kind.TIME), (pl.Null, Kind.UNKNOWN),
    (pl.Duration, Kind.INTEGER), (pl.UInt64, Kind.WIDE), (pl.Int128, Kind.WIDE),
)  # fmt: skip


def _column(name: str, kind: Any, instant: bool) -> Column:
    if instant:
        return Column(name, Kind.INSTANT)
    if isinstance(kind, pl.Decimal):
        return Column(name, Kind.DECIMAL, (kind.precision or 38, kind.scale))
    if isinstance(kind, pl.Datetime):
        return Column(name, Kind.WALL if kind.time_zone is None else Kind.MOMENT)
    for each, found in _KINDS:
        if kind == each:
            return Column(name, found)
    if kind.is_integer():
        return Column(name, Kind.INTEGER)
    return Column(name, Kind.REAL if kind.is_float() else Kind.JSON if kind.is_nested() else Kind.TEXT)


def plain(values: pl.Series, kind: Kind) -> pl.Series:
    """Convert values to types that every database has: nested values to JSON, categories to text."""
    if kind is Kind.JSON:
        texts = [None if each is None else json.dumps(each, default=text_in_json) for each in python_values(values)]
        return pl.Series(values.name, texts, pl.String)
    if kind is Kind.TEXT:
        return values.cast(pl.String)
    if kind is Kind.UNKNOWN:
        return values.cast(pl.String)
    return values.dt.total_microseconds() if values.dtype == pl.Duration else values
