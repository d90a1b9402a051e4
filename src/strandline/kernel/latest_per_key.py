"""Of all that a batch says of a key, what stands at its end: a row, or that the row is gone."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from strandline.kernel.blocks.block import END, START
from strandline.kernel.window.panes import INDEX, RETRACTION

_ROW = "@row"


@dataclass(frozen=True, slots=True)
class Standing:
    """Rows to be there, and rows to be taken away, each key at most once in both together."""

    rows: pl.DataFrame
    gone: pl.DataFrame


def standing(frame: pl.DataFrame, key: Sequence[str]) -> Standing:
    """The last word about each key: of the latest window the latest pane, unless that was taken back.

    A pane and its retraction have one index, so the retraction is the later of the two; where a pane follows, it is
    later still. Rows that are no panes are told apart by their order alone.
    """
    last = _last_words(frame, key) if frame.select(key).is_duplicated().any() else frame
    if RETRACTION not in frame.columns:
        return Standing(last, last.clear())
    return Standing(last.filter(~pl.col(RETRACTION)), last.filter(RETRACTION))


def _last_words(frame: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    order = [name for name in (END, START, INDEX, RETRACTION) if name in frame.columns]
    window = [name for name in (START, END) if name in frame.columns and RETRACTION in frame.columns]
    said = frame.with_row_index(_ROW).sort(*order, _ROW)
    last = said.unique(list(dict.fromkeys([*key, *window])), keep="last", maintain_order=True)
    if not set(window) <= set(key):
        # Sessions that met are taken back; the one they are now may have the same end, and stands.
        last = last.sort(END, ~pl.col(RETRACTION), START).unique(key, keep="last", maintain_order=True)
    return last.drop(_ROW)
