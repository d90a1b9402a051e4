"""Select the panes to record for the pane explorer: all of them, or all panes of selected keys.

A window's history is useful only if no pane is missing. So where a batch has more panes than the limit, keys are
selected by hash, fewer and fewer until they fit, and all panes of a selected key are kept.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from strandline.execution.task_metrics import hashes, named
from strandline.kernel.blocks.block import END, OWN, START
from strandline.kernel.blocks.python_values import python_rows
from strandline.kernel.window.panes import INDEX, LAST, RETRACTION, TIMING
from strandline.observe.metrics.measure import known_time
from strandline.observe.metrics.tables import PaneLine
from strandline.spark.delivery.deliver import Delivered

PER_BATCH: Final = 60
_COLUMNS: Final = 8
"""The most value columns that are recorded of a pane."""


class PaneSelector:
    """Selects and formats the panes to record."""

    def __init__(self, keys: Mapping[int, Sequence[str]], per_batch: int = PER_BATCH) -> None:
        self._keys, self._per_batch = keys, per_batch
        self._one_in = 1

    def lines(self, batch: Delivered) -> list[PaneLine]:
        """The recorded panes of a batch, window by window."""
        found: list[PaneLine] = []
        for number, output in enumerate(batch.outputs):
            if output.panes is not None and TIMING in output.panes.columns:
                keys = [key for key in self._keys.get(number, ()) if key in output.panes.columns]
                found += self._of(output.panes, keys, batch, number)
        return found

    def _of(self, panes: pl.DataFrame, keys: Sequence[str], batch: Delivered, output: int) -> list[PaneLine]:
        columns = [name for name in panes.columns if not name.startswith(OWN) and name not in keys][:_COLUMNS]
        rows = self._select(panes, keys).tail(self._per_batch).sort(START, END, maintain_order=True)
        return [_line(row, keys, columns, batch, output) for row in python_rows(rows)]

    def _select(self, panes: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        if not keys or (self._one_in == 1 and panes.height <= self._per_batch):
            return panes
        numbers = hashes(panes, keys)
        chosen = np.flatnonzero(numbers & np.uint64(self._one_in - 1) == 0)
        while chosen.size > self._per_batch:
            self._one_in *= 2
            fewer = chosen[numbers[chosen] & np.uint64(self._one_in - 1) == 0]
            if not fewer.size:
                break  # one key has more panes than fit: its last ones are kept
            chosen = fewer
        return panes[chosen]


def _line(
    row: Mapping[str, Any], keys: Sequence[str], columns: Sequence[str], batch: Delivered, output: int
) -> PaneLine:
    values = named(columns, [row[name] for name in columns])
    return PaneLine(
        0, batch.at, batch.batch, output, named(keys, [row[key] for key in keys]), known_time(row[START]),
        known_time(row[END]), row[TIMING], row[INDEX], bool(row[LAST]), bool(row[RETRACTION]), values,
    )  # fmt: skip
