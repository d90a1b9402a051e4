"""Encode rows as keys and values, and compute the version of each row."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from strandline.errors import SinkError
from strandline.formats.json.write_rows import as_json, json_value
from strandline.formats.sink_columns import Column, Kind, names_beside, to_sink_rows
from strandline.kernel.blocks.block import END, START
from strandline.kernel.window.panes import INDEX

VERSION: Final = "@version"
"""A row's first field. Versions compare as texts: the later window is newer, then the later job, the later pane, the
later batch. For windows with equal ends the later job and batch win (`scripts.lua`). Rows that are not panes have a
batch only."""
WIDTH: Final = 72
"""The length of a version: 20 digits for each window bound, 8 for the job, 10 for the pane, 14 for the batch."""
NULL: Final = "%00"
"""What a null becomes in a key; `%` in a text is escaped as %25."""

_NO_WINDOW: Final = "0" * 20


def key_of(
    panes: pl.DataFrame, configured: tuple[str, ...], keys: tuple[str, ...] | None, sink: str
) -> tuple[str, ...]:
    """The key columns by their public names."""
    public = names_beside(panes.columns)
    if not configured:
        return (*(keys or ()), *(public[name] for name in (START, END) if name in panes.columns))
    known = [public.get(name, name) for name in panes.columns]
    unknown = [name for name in configured if name not in known]
    if unknown:
        raise SinkError(
            f"{sink} needs the key columns {', '.join(unknown)}, which the rows do not have",
            detail=f"the rows have {', '.join(known)}",
            hint="name other columns",
        )
    return configured


def keys_for(panes: pl.DataFrame, key: Sequence[str], prefix: str) -> pl.Series:
    """Build `prefix:red:1970-01-01T00:00:00.000Z`: the values of a row's key, joined by colons."""
    converted = to_sink_rows(panes, 0)
    by_name = {column.name: column for column in converted.columns}
    parts = [_part(by_name[name]) for name in key]
    return converted.rows.select(pl.concat_str([pl.lit(prefix), *parts], separator=":").alias("key")).to_series()


def _part(column: Column) -> pl.Expr:
    text = json_value(column).cast(pl.String)
    if column.kind in (Kind.TEXT, Kind.JSON):
        for sign, written in (("%", "%25"), (":", "%3A"), ("\n", "%0A")):
            text = text.str.replace_all(sign, written, literal=True)
    return text.fill_null(NULL)


def versions_of(panes: pl.DataFrame, job: int, batch: int) -> pl.Series:
    """Compute the version of each row."""
    bounds = [_digits(pl.col(name), 20) if name in panes.columns else pl.lit(_NO_WINDOW) for name in (END, START)]
    index = pl.col(INDEX).cast(pl.String).str.zfill(10) if INDEX in panes.columns else pl.lit("0" * 10)
    parts = [*bounds, pl.lit(f"{job:08}"), index, pl.lit(f"{batch:014}")]
    return panes.with_columns(pl.concat_str(parts).alias(VERSION))[VERSION]


def _digits(bound: pl.Expr, width: int) -> pl.Expr:
    """Format instants as sortable text, counted from the beginning of time."""
    return (bound.cast(pl.Int128) + 2**63).cast(pl.String).str.zfill(width)


def values_of(panes: pl.DataFrame, versions: pl.Series, batch: int) -> pl.Series:
    """Encode each row as JSON, its version first."""
    return as_json(panes.select(versions.alias(VERSION), *panes.columns), batch)
