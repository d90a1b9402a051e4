"""Count windows: a pane for each that fills, and of each key no more kept than a pane may still hold."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.kernel.aggregation.accumulators import ELEMENTS
from strandline.kernel.blocks.block import AT, END, OFFSET, PARTITION, START
from strandline.kernel.watermarks import FOREVER
from strandline.kernel.window.count_windows import PENDING, SEEN, fill_windows
from strandline.kernel.window.panes import TIMESTAMP
from strandline.kernel.window.window_rows import OpenWindows
from strandline.model.panes import PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.windows import Count

NAN = float("nan")


class Counting:
    """Keys that count, batch by batch."""

    def __init__(self, size: int, every: int | None = None, **answers: Any) -> None:
        self.kind = Count(size, every)
        self.ask = WindowedStep((("all", sl.collect("v")),), self.kind, **answers)
        self.kept = OpenWindows()
        self._offset = 0

    def play(self, *values: int, key: Any = "k", end: bool = False) -> list[tuple[int, int, list[int]]]:
        """One batch of one key: of each pane its bounds and what it holds."""
        panes = self.batch([(key, value) for value in values], end=end)
        return [] if panes is None else panes.select(START, END, "all").rows()

    def batch(self, rows: list[tuple[Any, int]], *, end: bool = False) -> pl.DataFrame | None:
        frame = None
        if rows:
            offsets = range(self._offset, self._offset + len(rows))
            keys, values = zip(*rows, strict=True)
            frame = pl.DataFrame(
                {"key": keys, "v": values, AT: [value * 1000 for value in values], PARTITION: "", OFFSET: offsets},
                strict=False,
            )
        self._offset += len(rows)
        panes, self.kept = fill_windows(self.kept, frame, ["key"], self.ask, self.kind, FOREVER if end else 0)
        return panes

    @property
    def held(self) -> int:
        """The elements that are kept."""
        return self.kept.items[ELEMENTS].height if self.kept.items else 0


def test_a_window_speaks_when_it_is_full_whatever_the_batches() -> None:
    counting = Counting(3)
    assert counting.play(1, 2) == []
    assert counting.play(3, 4) == [(0, 3, [1, 2, 3])]
    assert counting.play(5, 6, 7, 8, 9, 10) == [(3, 6, [4, 5, 6]), (6, 9, [7, 8, 9])]


def test_at_the_end_of_input_the_rest_is_told_under_the_bounds_of_the_whole_window() -> None:
    counting = Counting(3)
    counting.play(1, 2, 3, 4)
    assert counting.play(5, end=True) == [(3, 6, [4, 5])]
    assert counting.kept == OpenWindows()
    assert Counting(3).play(end=True) == []


def test_the_end_of_input_also_tells_what_came_before_it() -> None:
    counting = Counting(3)
    counting.play(1, 2)
    assert counting.play(end=True) == [(0, 3, [1, 2])]


def test_sliding_windows_hold_the_newest_elements_and_none_twice_at_the_end() -> None:
    counting = Counting(3, every=2)
    assert counting.play(1, 2, 3) == [(0, 2, [1, 2])]
    assert counting.play(4, 5) == [(1, 4, [2, 3, 4])]
    assert counting.play(end=True) == [(2, 5, [3, 4, 5])]
    full = Counting(3, every=2)
    full.play(1, 2)
    assert full.play(end=True) == []


def test_windows_with_gaps_between_them_leave_elements_out() -> None:
    counting = Counting(1, every=3)
    assert counting.play(1, 2, 3, 4, 5, 6, 7) == [(2, 3, [3]), (5, 6, [6])]
    assert counting.play(end=True) == [(6, 7, [7])]


@pytest.mark.slow
def test_of_each_key_no_more_is_kept_than_a_pane_may_still_hold() -> None:
    for size, every, most in ((3, None, 2), (3, 2, 3), (1, 3, 1)):
        counting = Counting(size, every)
        for value in range(20):
            counting.play(value)
            assert counting.held <= most
        assert counting.kept.windows is not None
        assert counting.kept.windows.select(SEEN).item() == 20


@pytest.mark.parametrize("key", [None, NAN, "x", 1.5])
def test_every_key_is_a_key_also_null_and_nan(key: Any) -> None:
    counting = Counting(2)
    assert [counting.play(value, key=key) for value in (1, 2, 3, 4)] == [[], [(0, 2, [1, 2])], [], [(2, 4, [3, 4])]]


def test_keys_count_apart() -> None:
    counting = Counting(2)
    panes = counting.batch([("a", 1), ("b", 2), ("a", 3), (None, 4)])
    assert panes is not None
    assert panes.select("key", "all").rows() == [("a", [1, 3])]
    assert counting.kept.windows is not None
    known = counting.kept.windows.select("key", SEEN, PENDING).sort("key").rows()
    assert known == [(None, 1, 1), ("a", 2, 0), ("b", 1, 1)]


@pytest.mark.parametrize(
    ("timestamp", "told"),
    [(PaneTimestamp.END_OF_WINDOW, 9_000), (PaneTimestamp.LATEST, 9_000), (PaneTimestamp.EARLIEST, 2_000)],
)
def test_a_pane_has_the_time_of_its_latest_or_earliest_element(timestamp: PaneTimestamp, told: int) -> None:
    panes = Counting(3, pane_timestamp=timestamp).batch([("k", 5), ("k", 9), ("k", 2)])
    assert panes is not None
    assert panes[TIMESTAMP].to_list() == [told]


@given(
    st.lists(st.integers(1, 9), max_size=8),
    st.integers(1, 4),
    st.none() | st.integers(1, 5),
)
def test_it_does_not_matter_how_elements_are_cut_into_batches(sizes: list[int], size: int, every: int | None) -> None:
    values = [*range(sum(sizes))]
    whole, cut = Counting(size, every), Counting(size, every)
    told = whole.play(*values) + whole.play(end=True)
    left = iter(values)
    parts = [pane for many in sizes for pane in cut.play(*(next(left) for _ in range(many)))]
    assert parts + cut.play(end=True) == told
