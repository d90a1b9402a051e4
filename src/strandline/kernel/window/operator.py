"""Aggregate elements by key and window: the window operator.

A batch is played in this order: collect elements; play shared slices; open the slices that elements touch or a deadline
makes due; judge elements by the watermark before the batch, add them, fire; write what changed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import polars as pl

from strandline.kernel.aggregation.check_user_aggregates import reject_failing_keys
from strandline.kernel.operator import Batch, Exported, Fit, Played, Prepared
from strandline.kernel.state.partitioning import slices_of, span_of
from strandline.kernel.state.slice_deltas import Changing, seldom
from strandline.kernel.state.slice_rows import WINDOWS
from strandline.kernel.state.slice_store import Slices, due
from strandline.kernel.watermarks import Rule
from strandline.kernel.window import export
from strandline.kernel.window.arrivals import Arrived
from strandline.kernel.window.prepare import admit, prepare
from strandline.kernel.window.shared_slice_store import Ripe
from strandline.kernel.window.state_migrations import in_rows, is_older
from strandline.kernel.window.strategies import WindowStrategy, strategy_of
from strandline.kernel.window.window_rows import OpenWindows
from strandline.kernel.window.window_slices import (
    begin_deltas,
    deleted_deltas,
    read_windows,
    sift_expired,
    takes_deltas,
    with_touched,
    write_windows,
)
from strandline.model.steps import WindowedStep

Touched = Sequence[tuple[pl.DataFrame, pl.Series]]
"""Frames of a batch, each with the slice that every row belongs to."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The slices that a batch opens: read whole, or with a delta."""

    windows: OpenWindows
    whole: frozenset[int]
    """Slices that are in state and will be written whole."""
    changing: Mapping[int, Changing]
    left: Slices
    """Slices that stay as they are."""


@dataclass(frozen=True)
class WindowOperator:
    """The window operator over certain keys."""

    definition: WindowedStep
    keys: tuple[str, ...]

    @property
    def takes_signs(self) -> bool:
        return self.definition.signed

    @cached_property
    def _strategy(self) -> WindowStrategy:
        return strategy_of(self.definition, self.keys)

    def admit(self, elements: pl.DataFrame, rule: Rule | None, clock: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        return admit(elements, self.definition, rule, clock)

    def probe(self, elements: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        return reject_failing_keys(elements, self.keys, self.definition)

    def prepare(self, elements: pl.DataFrame, groups: int, horizon: int | None) -> Prepared:
        return prepare(elements, self.keys, self.definition, groups, horizon)

    def play(self, batch: Batch) -> Played:
        strategy, now = self._strategy, batch.now
        arrived = strategy.arrive(batch.blocks, now)
        shared = strategy.share(batch, arrived)
        opened = self._open(batch, self._touched(arrived, shared.ended))
        updated = strategy.update(opened.windows, arrived, shared, now)
        writes, slices = write_windows(
            updated.windows, opened.whole, self.keys, self.definition, strategy.deadlines(now), opened.changing
        )
        known = batch.index.store(WINDOWS.name)
        shared_writes, shared_stores = strategy.write_shared(batch, shared)
        return Played(
            {**writes, **deleted_deltas(opened.whole, known), **shared_writes},
            {WINDOWS.name: {**opened.left, **slices}, **shared_stores},
            updated.panes,
            updated.judged.late,
            updated.judged.contributed + arrived.surely,
            updated.judged.refused,
        )

    def _touched(self, arrived: Arrived, ended: Ripe) -> Touched:
        frames = [each.rows for each in (arrived.parts, ended.windows) if each is not None]
        frames += [arrived.placed] if arrived.placed is not None else []
        span = span_of(self.definition.window)
        return [(frame, slices_of(frame, self.keys, span)) for frame in frames]

    def _open(self, batch: Batch, touched: Touched) -> Opened:
        """Read the slices that elements touch or a deadline makes due."""
        slices, ask = batch.index.store(WINDOWS.name), self.definition
        many, due_now = _rows_by_slice(touched), due(slices, batch.progress)
        # State of an older form is migrated all at once: of a slice that is half read, half would be lost.
        older = is_older(batch.index.form, ask)
        few = frozenset[int]() if older or not takes_deltas(ask) else seldom(slices, many, due_now)
        numbers = {*many, *due_now, *(slices if older else ())} - few
        rows_of = partial(_rows_in, touched)
        sift = None if older else sift_expired(rows_of, self.keys, ask, batch.now)
        read = self._migrated(read_windows(batch.held, numbers & slices.keys(), slices, sift))
        changing = begin_deltas(batch.held, slices, {n: rows_of(n) for n in few}, self.keys)
        left = {number: entry for number, entry in slices.items() if number not in numbers}
        return Opened(with_touched(read, changing), frozenset(numbers & slices.keys()), changing, left)

    def _migrated(self, windows: OpenWindows) -> OpenWindows:
        if windows.windows is None:
            return windows
        rows, items = in_rows(windows.windows, windows.items, self.definition)
        return replace(windows, windows=rows, items=items)

    def blocks_of(self, exported: Exported) -> dict[str, bytes]:
        return export.blocks_of(exported, self.keys, self.definition)

    def fitted(self, exported: Exported, fit: Fit) -> Exported:
        return export.fitted(exported, self.definition, fit)

    def missing(self, exported: Exported) -> list[str]:
        return export.missing(exported, self.keys, self.definition)


def _rows_by_slice(touched: Touched) -> dict[int, int]:
    """Count the rows that come to each slice, at most."""
    found: Counter[int] = Counter()
    for _, numbers in touched:
        found.update(dict(numbers.value_counts().iter_rows()))
    return found


def _rows_in(touched: Iterable[tuple[pl.DataFrame, pl.Series]], number: int) -> list[pl.DataFrame]:
    return [frame.filter(numbers == number) for frame, numbers in touched]
