"""Aggregate elements by key and window: the window operator.

The operator processes a batch in this order: collect elements; update shared slices; read the state slices that
elements touch or a deadline makes due; split off late elements by the watermark before the batch; add elements; fire
triggers; write changed slices.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import polars as pl

from strandline.kernel.aggregation.check_types import reject_unfit_elements
from strandline.kernel.aggregation.check_user_aggregates import reject_failing_keys
from strandline.kernel.operator import Batch, BatchResult, Exported, Fit, Prepared
from strandline.kernel.state.partitioning import slices_of, span_of
from strandline.kernel.state.slice_deltas import SliceChanges, slices_with_few_changes
from strandline.kernel.state.slice_rows import WINDOWS
from strandline.kernel.state.slice_store import Slices, due
from strandline.kernel.watermarks import Rule
from strandline.kernel.window import export
from strandline.kernel.window.arrivals import Arrivals
from strandline.kernel.window.panes import overflowed_sums
from strandline.kernel.window.prepare import admit, prepare
from strandline.kernel.window.shared_slice_store import EndedWindows
from strandline.kernel.window.state_migrations import in_rows, is_older
from strandline.kernel.window.strategies import WindowStrategy, strategy_of
from strandline.kernel.window.window_rows import OpenWindows
from strandline.kernel.window.window_slices import (
    begin_deltas,
    deleted_deltas,
    drop_expired,
    read_windows,
    takes_deltas,
    with_touched,
    write_windows,
)
from strandline.model.steps import WindowedStep

Touched = Sequence[tuple[pl.DataFrame, pl.Series]]
"""Frames of a batch, each with the slice number of every row."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The slices that a batch reads: either whole, or only the rows that get a delta."""

    windows: OpenWindows
    rewritten: frozenset[int]
    """Slices in state that are written whole."""
    changing: Mapping[int, SliceChanges]
    unchanged: Slices
    """Entries of slices that the batch does not read."""


@dataclass(frozen=True, slots=True)
class WindowsResult:
    """The changes and the output of a batch, and the open windows that it reads, before and after."""

    played: BatchResult
    before: OpenWindows
    after: OpenWindows


@dataclass(frozen=True)
class WindowOperator:
    """The window operator for given key columns."""

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
        fit, unfit = reject_unfit_elements(elements, self.definition)
        taken, failing = reject_failing_keys(fit, self.keys, self.definition)
        failed = [each for each in (unfit, failing) if each is not None]
        return taken, pl.concat(failed, how="diagonal_relaxed") if failed else None

    def prepare(self, elements: pl.DataFrame, groups: int, horizon: int | None) -> Prepared:
        return prepare(elements, self.keys, self.definition, groups, horizon)

    def play(self, batch: Batch) -> BatchResult:
        return self.play_windows(batch).played

    def play_windows(self, batch: Batch) -> WindowsResult:
        """Process one batch, and return the open windows of the slices that it reads, before and after."""
        strategy, now = self._strategy, batch.now
        arrivals = strategy.collect(batch.blocks, now)
        shared = strategy.share(batch, arrivals)
        opened = self._open(batch, self._touched_frames(arrivals, shared.ended))
        updated = strategy.update(opened.windows, arrivals, shared, now)
        writes, slices = write_windows(
            updated.windows, opened.rewritten, self.keys, self.definition, strategy.deadlines(now), opened.changing
        )
        known = batch.index.store(WINDOWS.name)
        shared_writes, shared_stores = strategy.write_shared(batch, shared)
        played = BatchResult(
            {**writes, **deleted_deltas(opened.rewritten, known), **shared_writes},
            {WINDOWS.name: {**opened.unchanged, **slices}, **shared_stores},
            updated.panes,
            updated.late_split.late,
            updated.late_split.contributed + arrivals.combined_count,
            updated.late_split.refused,
            overflow=0 if updated.panes is None else overflowed_sums(updated.panes, self.definition),
        )
        return WindowsResult(played, opened.windows, updated.windows)

    def _touched_frames(self, arrivals: Arrivals, ended: EndedWindows) -> Touched:
        frames = [each.rows for each in (arrivals.parts, ended.windows) if each is not None]
        frames += [arrivals.assigned] if arrivals.assigned is not None else []
        span = span_of(self.definition.window)
        return [(frame, slices_of(frame, self.keys, span)) for frame in frames]

    def _open(self, batch: Batch, touched: Touched) -> Opened:
        """Read the slices that elements touch or a deadline makes due."""
        slices, step = batch.index.store(WINDOWS.name), self.definition
        row_counts, due_now = _rows_by_slice(touched), due(slices, batch.progress)
        # Migrate state of an older form in one batch: a slice that is read in part would lose the rest.
        older = is_older(batch.index.form, step)
        with_delta = (
            frozenset[int]()
            if older or not takes_deltas(step)
            else slices_with_few_changes(slices, row_counts, due_now)
        )
        numbers = {*row_counts, *due_now, *(slices if older else ())} - with_delta
        rows_of = partial(_rows_in, touched)
        row_filter = None if older else drop_expired(rows_of, self.keys, step, batch.now)
        read = self._migrated(read_windows(batch.held, numbers & slices.keys(), slices, row_filter))
        changing = begin_deltas(batch.held, slices, {n: rows_of(n) for n in with_delta}, self.keys)
        unchanged = {number: entry for number, entry in slices.items() if number not in numbers}
        return Opened(with_touched(read, changing), frozenset(numbers & slices.keys()), changing, unchanged)

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
    """Count an upper bound of the rows that the batch changes in each slice."""
    found: Counter[int] = Counter()
    for _, numbers in touched:
        found.update(dict(numbers.value_counts().iter_rows()))
    return found


def _rows_in(touched: Iterable[tuple[pl.DataFrame, pl.Series]], number: int) -> list[pl.DataFrame]:
    return [frame.filter(numbers == number) for frame, numbers in touched]
