"""Convert rows to Python values where a time is outside Python's calendar, which ends with year 9999.

A date has 32 bits and a timestamp 64. Python's own types hold years 1 to 9999; Polars itself formats some 262,000 years
and panics beyond. Rows on their way to a message, to JSON or to a dead letter get a text for such a value.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from strandline.kernel.blocks.column_types import YEAR_ONE, YEAR_TEN_THOUSAND
from strandline.kernel.panics import PanicException

UNCONVERTIBLE: Final = (ValueError, OverflowError, pl.exceptions.PolarsError, PanicException)
"""What Polars raises for a value without a Python or text form."""

_PER_SECOND: Final = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_MS: Final = 86_400_000


def python_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return rows as dicts; times outside the calendar as texts."""
    try:
        return frame.to_dicts()
    except UNCONVERTIBLE:
        return readable(frame).to_dicts()


def python_values(values: pl.Series) -> list[Any]:
    """Return values; if a time is outside the calendar, all times as texts."""
    try:
        return values.to_list()
    except UNCONVERTIBLE:
        return readable(values.to_frame()).to_series().to_list()


def row_as_json(row: Mapping[str, Any]) -> bytes:
    """Encode one row as JSON, to be read by people and to be redriven."""
    return json.dumps(dict(row), default=text_in_json, ensure_ascii=False).encode(errors="replace")


def text_in_json(value: Any) -> str:
    """Return the text of a value without a JSON form."""
    return value.hex() if isinstance(value, bytes) else str(value)


def readable(frame: pl.DataFrame) -> pl.DataFrame:
    """Replace columns with a time outside the calendar by texts: ISO 8601, or a number of units since 1970."""
    return pl.DataFrame([_readable(column) for column in frame.get_columns()])


def _readable(values: pl.Series) -> pl.Series:
    kind = values.dtype
    if isinstance(kind, pl.Duration):
        return values.to_physical()
    if kind.is_nested():
        return _readable_nested(values)
    if not isinstance(kind, pl.Date | pl.Datetime):
        return values
    physical = values.to_physical().cast(pl.Int64)
    unit, per_ms = _unit_of(kind)
    # A comparison with the limits in the column's own unit; nulls stay null.
    inside = (physical >= int(YEAR_ONE * per_ms)) & (physical < int(YEAR_TEN_THOUSAND * per_ms))
    if inside.all():
        return values
    names = pl.DataFrame([values.alias("value"), physical.alias("number"), inside.alias("inside")])
    known = names.select(pl.when("inside").then(pl.col("value")).cast(pl.String)).to_series()
    others = names.select(pl.format("{} {} since 1970-01-01", pl.col("number"), pl.lit(unit))).to_series()
    texts = pl.DataFrame([known.alias("known"), others.alias("others")])
    return texts.select(pl.coalesce("known", "others").alias(values.name)).to_series()


def _unit_of(kind: pl.Date | pl.Datetime) -> tuple[str, float]:
    """Return the name of a type's unit, and how many of it are a millisecond."""
    if isinstance(kind, pl.Datetime):
        return kind.time_unit, _PER_SECOND[kind.time_unit] / 1_000
    return "days", 1 / _DAY_MS


def _readable_nested(values: pl.Series) -> pl.Series:
    """Return the values, or their texts where one of them has no Python form."""
    try:
        values.to_list()
    except UNCONVERTIBLE:
        return pl.Series(values.name, [_nested_text(values[place : place + 1]) for place in range(values.len())])
    return values


def _nested_text(value: pl.Series) -> str | None:
    try:
        return None if value.null_count() else str(value.to_list()[0])
    except UNCONVERTIBLE:
        return f"a {value.dtype} with a time outside the calendar"
