"""Rows as JSON objects under their public names, a column at a time where that is possible."""

import json
import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from strandline.formats.sink_columns import Column, Kind, Told, tell
from strandline.kernel.blocks.column_types import YEAR_ONE, YEAR_TEN_THOUSAND
from strandline.model import elements


def as_json(frame: pl.DataFrame, batch: int, columns: Sequence[str] | None = None) -> pl.Series:
    """Each row as a JSON object of its columns under their public names, all of them or these."""
    told = tell(frame, batch)
    chosen = told if columns is None else _ordered(told, columns)
    texts = chosen.rows.select(readable(column) for column in chosen.columns)
    real = [column.name for column in chosen.columns if column.kind is Kind.REAL]
    odd = any(not texts[name].is_finite().all() for name in real) or not texts.width
    if odd or any(column.kind is Kind.JSON for column in chosen.columns):
        nested = [column.name for column in chosen.columns if column.kind is Kind.JSON]
        return pl.Series([_dumped(row, nested) for row in texts.iter_rows(named=True)], dtype=pl.Binary)
    return pl.Series(texts.write_ndjson().encode().split(b"\n")[:-1], dtype=pl.Binary)


def _ordered(told: Told, columns: Sequence[str]) -> Told:
    by_name = {column.name: column for column in told.columns}
    return Told(told.rows.select(columns), tuple(by_name[name] for name in columns))


def _dumped(row: dict[str, Any], nested: Sequence[str]) -> bytes:
    """A row with values that are lists or structures, or numbers for which JSON has no word."""
    for name, value in row.items():
        if name in nested and value is not None:
            row[name] = json.loads(value)
        elif isinstance(value, float) and not math.isfinite(value):
            row[name] = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def readable(column: Column) -> pl.Expr:
    """Times in ISO 8601, bytes in base64, decimals as texts; everything else as it is."""
    mine = pl.col(column.name)
    match column.kind:
        case Kind.INSTANT:
            inside = pl.when(mine.is_between(YEAR_ONE, YEAR_TEN_THOUSAND, closed="left")).then(mine)
            text = pl.from_epoch(inside, time_unit="ms").dt.to_string("%Y-%m-%dT%H:%M:%S%.3fZ")
            begins, over = mine == elements.BEGINNING.ms, mine == elements.END.ms
            ends = pl.when(begins).then(pl.lit("-infinity")).when(over).then(pl.lit("infinity"))
            return ends.otherwise(text.fill_null(mine.cast(pl.String))).alias(column.name)
        case Kind.MOMENT:
            return mine.dt.convert_time_zone("UTC").dt.to_string("%Y-%m-%dT%H:%M:%S%.6fZ")
        case Kind.WALL:
            return mine.dt.to_string("%Y-%m-%dT%H:%M:%S%.6f")
        case Kind.BINARY:
            return mine.bin.encode("base64")
        case Kind.DATE | Kind.TIME | Kind.DECIMAL:
            return mine.cast(pl.String)
        case _:
            return mine
