"""Times and dates as texts: the ways to write them that are understood, each text on its own."""

from typing import Final

import polars as pl
import pyarrow as pa

_TIMES: Final = ("%+", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M%#z", "%Y-%m-%d")
"""ISO 8601 with an offset, or without one, which is UTC. The first is by far the most common, and the fastest."""


def instants(texts: pl.Series) -> pl.Series:
    """Each text by the first way of writing that fits it; to infer one way would make it depend on its neighbours."""
    found = pl.Series(texts.name, [None] * len(texts), pl.Datetime("us", "UTC"))
    for way in _TIMES:
        missing = found.is_null() & texts.is_not_null()
        if not missing.any():
            break
        read = texts.str.to_datetime(way, time_unit="us", time_zone="UTC", strict=False)
        found = read.zip_with(missing, found)
    return found


def days(texts: pl.Series) -> pl.Series:
    """Dates like 2024-05-01."""
    return texts.str.to_date("%Y-%m-%d", strict=False)


def beyond(rows: pl.DataFrame, schema: pa.Schema) -> pl.Series:
    """Rows with a number or a time that fits its type by the letter only."""
    found = pl.repeat(value=False, n=rows.height, eager=True)
    for field in schema:
        column = rows[field.name]
        if pa.types.is_temporal(field.type):
            found |= ~column.dt.year().is_between(1, 9999).fill_null(value=True)
        elif pa.types.is_float32(field.type):
            found |= column.is_infinite().fill_null(value=False)
    return found
