"""Find the latest row of each key in a batch, for sinks that upsert: a row to write, or a key to delete."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from strandline.kernel.blocks.block import END, START
from strandline.kernel.window.panes import INDEX, RETRACTION

_ROW = "@row"


@dataclass(frozen=True, slots=True)
class LatestRows:
    """Rows to write and rows to delete; each key appears at most once in both together."""

    rows: pl.DataFrame
    gone: pl.DataFrame


def latest_rows(frame: pl.DataFrame, key: Sequence[str]) -> LatestRows:
    """Return the latest row of each key: the latest pane of the latest window, unless it was retracted.

    A pane and its retraction have the same index, and the retraction is the later one. Rows without panes are in order
    already.
    """
    last = _latest(frame, key) if frame.select(key).is_duplicated().any() else frame
    if RETRACTION not in frame.columns:
        return LatestRows(last, last.clear())
    return LatestRows(last.filter(~pl.col(RETRACTION)), last.filter(RETRACTION))


def _latest(frame: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    if INDEX not in frame.columns:
        return frame.unique(key, keep="last", maintain_order=True)
    numbered = frame.with_row_index(_ROW).sort(END, START, INDEX, RETRACTION, _ROW)
    last = numbered.unique(list(dict.fromkeys([*key, START, END])), keep="last", maintain_order=True)
    if not {START, END} <= set(key):
        # The panes of merged sessions are retracted; the new session may have the same end, and its pane stays.
        last = last.sort(END, ~pl.col(RETRACTION), START).unique(key, keep="last", maintain_order=True)
    return last.drop(_ROW)
