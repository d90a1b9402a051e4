"""Parse times and dates from text, each value on its own, in several formats."""

from datetime import UTC, date, datetime
from typing import Final

import polars as pl
import pyarrow as pa

_TIMES: Final = ("%+", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M%#z", "%Y-%m-%d")
"""ISO 8601 with an offset, or without one, which means UTC. The first format is by far the most common, and the
fastest."""


def instants(texts: pl.Series) -> pl.Series:
    """Parse each text by the first format that fits it. One inferred format would make a value depend on its
    neighbours."""
    found = _read(texts, _TIMES[0])
    missing = (found.is_null() & texts.is_not_null()).arg_true()
    for format_ in _TIMES[1:]:
        if missing.is_empty():
            break
        again = _read(texts[missing], format_)
        found = found.scatter(missing, again)
        missing = missing.filter(again.is_null())
    return found


def _read(texts: pl.Series, format_: str) -> pl.Series:
    return texts.str.to_datetime(format_, time_unit="us", time_zone="UTC", strict=False)


def days(texts: pl.Series) -> pl.Series:
    """Parse dates like 2024-05-01."""
    return texts.str.to_date("%Y-%m-%d", strict=False)


def out_of_range(rows: pl.DataFrame, schema: pa.Schema) -> pl.Series:
    """Rows with a number or a time that parses, but is out of the range of its type."""
    found = pl.repeat(value=False, n=rows.height, eager=True)
    for field in schema:
        column = rows[field.name]
        if pa.types.is_date(field.type):
            found |= ~column.is_between(date.min, date.max).fill_null(value=True)
        elif pa.types.is_timestamp(field.type):
            zone = None if field.type.tz is None else UTC
            first, last = datetime.min.replace(tzinfo=zone), datetime.max.replace(tzinfo=zone)
            found |= ~column.is_between(first, last).fill_null(value=True)
        elif pa.types.is_float32(field.type):
            found |= column.is_infinite().fill_null(value=False)
    return found
