"""Encode rows as JSON objects under their public names, a column at a time where possible."""

import json
import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from strandline.formats.sink_columns import Column, Kind, SinkRows, to_sink_rows
from strandline.kernel.blocks.column_types import YEAR_ONE, YEAR_TEN_THOUSAND
from strandline.model import elements


def as_json(frame: pl.DataFrame, batch: int, columns: Sequence[str] | None = None) -> pl.Series:
    """Encode each row as a JSON object of all columns or of these, under their public names."""
    sink_rows = to_sink_rows(frame, batch)
    chosen = sink_rows if columns is None else _ordered(sink_rows, columns)
    texts = chosen.rows.select(json_value(column) for column in chosen.columns)
    real = [column.name for column in chosen.columns if column.kind is Kind.REAL]
    odd = any(not texts[name].is_finite().all() for name in real) or not texts.width
    if odd or any(column.kind is Kind.JSON for column in chosen.columns):
        nested = [column.name for column in chosen.columns if column.kind is Kind.JSON]
        return pl.Series([_dumped(row, nested) for row in texts.iter_rows(named=True)], dtype=pl.Binary)
    return pl.Series(texts.write_ndjson().encode().split(b"\n")[:-1], dtype=pl.Binary)


def _ordered(sink_rows: SinkRows, columns: Sequence[str]) -> SinkRows:
    by_name = {column.name: column for column in sink_rows.columns}
    return SinkRows(sink_rows.rows.select(columns), tuple(by_name[name] for name in columns))


def _dumped(row: dict[str, Any], nested: Sequence[str]) -> bytes:
    """Encode a row with lists or structs, or with numbers that JSON cannot express."""
    for name, value in row.items():
        if name in nested and value is not None:
            row[name] = json.loads(value)
        elif isinstance(value, float) and not math.isfinite(value):
            row[name] = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def json_value(column: Column) -> pl.Expr:
    """Format times as ISO 8601, bytes as base64, decimals as text; leave every other column as it is."""
    values = pl.col(column.name)
    match column.kind:
        case Kind.INSTANT:
            inside = pl.when(values.is_between(YEAR_ONE, YEAR_TEN_THOUSAND, closed="left")).then(values)
            text = pl.from_epoch(inside, time_unit="ms").dt.to_string("%Y-%m-%dT%H:%M:%S%.3fZ")
            begins, over = values == elements.BEGINNING.ms, values == elements.END.ms
            ends = pl.when(begins).then(pl.lit("-infinity")).when(over).then(pl.lit("infinity"))
            return ends.otherwise(text.fill_null(values.cast(pl.String))).alias(column.name)
        case Kind.MOMENT:
            return values.dt.convert_time_zone("UTC").dt.to_string("%Y-%m-%dT%H:%M:%S%.6fZ")
        case Kind.WALL:
            return values.dt.to_string("%Y-%m-%dT%H:%M:%S%.6f")
        case Kind.BINARY:
            return values.bin.encode("base64")
        case Kind.DATE | Kind.TIME | Kind.DECIMAL:
            return values.cast(pl.String)
        case _:
            return values
