"""Of all that a batch says of a key, what stands at its end: a row, or that the row is gone."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from strandline.kernel.blocks import END, START
from strandline.kernel.panes import INDEX, RETRACTION

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
    order = [name for name in (END, START, INDEX, RETRACTION) if name in frame.columns]
    last = frame.with_row_index(_ROW).sort(*order, _ROW).unique(key, keep="last", maintain_order=True).drop(_ROW)
    if RETRACTION not in frame.columns:
        return Standing(last, last.clear())
    return Standing(last.filter(~pl.col(RETRACTION)), last.filter(RETRACTION))
