"""Count windows: one pane per full window, and no more state than later panes need."""

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
    """Count windows played batch by batch."""

    def __init__(self, size: int, every: int | None = None, **options: Any) -> None:
        self.kind = Count(size, every)
        self.definition = WindowedStep((("all", sl.collect("v")),), self.kind, **options)
        self.state = OpenWindows()
        self._offset = 0

    def play(self, *values: int, key: Any = "k", end: bool = False) -> list[tuple[int, int, list[int]]]:
        """Play one batch of one key; return the bounds and contents of each pane."""
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
        panes, self.state = fill_windows(self.state, frame, ["key"], self.definition, self.kind, FOREVER if end else 0)
        return panes

    @property
    def held(self) -> int:
        """Return the number of elements in state."""
        return self.state.items[ELEMENTS].height if self.state.items else 0


def test_a_window_fires_when_it_is_full_whatever_the_batches() -> None:
    counting = Counting(3)
    assert counting.play(1, 2) == []
    assert counting.play(3, 4) == [(0, 3, [1, 2, 3])]
    assert counting.play(5, 6, 7, 8, 9, 10) == [(3, 6, [4, 5, 6]), (6, 9, [7, 8, 9])]


def test_at_the_end_of_input_the_rest_is_emitted_with_the_bounds_of_a_full_window() -> None:
    counting = Counting(3)
    counting.play(1, 2, 3, 4)
    assert counting.play(5, end=True) == [(3, 6, [4, 5])]
    assert counting.state == OpenWindows()
    assert Counting(3).play(end=True) == []


def test_the_end_of_input_emits_elements_of_earlier_batches() -> None:
    counting = Counting(3)
    counting.play(1, 2)
    assert counting.play(end=True) == [(0, 3, [1, 2])]


def test_sliding_windows_contain_the_newest_elements_and_repeat_none_at_the_end() -> None:
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
def test_state_per_key_has_no_more_elements_than_later_panes_need() -> None:
    for size, every, most in ((3, None, 2), (3, 2, 3), (1, 3, 1)):
        counting = Counting(size, every)
        for value in range(20):
            counting.play(value)
            assert counting.held <= most
        assert counting.state.windows is not None
        assert counting.state.windows.select(SEEN).item() == 20


@pytest.mark.parametrize("key", [None, NAN, "x", 1.5])
def test_null_and_nan_are_valid_keys(key: Any) -> None:
    counting = Counting(2)
    assert [counting.play(value, key=key) for value in (1, 2, 3, 4)] == [[], [(0, 2, [1, 2])], [], [(2, 4, [3, 4])]]


def test_each_key_counts_separately() -> None:
    counting = Counting(2)
    panes = counting.batch([("a", 1), ("b", 2), ("a", 3), (None, 4)])
    assert panes is not None
    assert panes.select("key", "all").rows() == [("a", [1, 3])]
    assert counting.state.windows is not None
    known = counting.state.windows.select("key", SEEN, PENDING).sort("key").rows()
    assert known == [(None, 1, 1), ("a", 2, 0), ("b", 1, 1)]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(PaneTimestamp.END_OF_WINDOW, 9_000), (PaneTimestamp.LATEST, 9_000), (PaneTimestamp.EARLIEST, 2_000)],
)
def test_a_pane_has_the_time_of_its_latest_or_earliest_element(timestamp: PaneTimestamp, expected: int) -> None:
    panes = Counting(3, pane_timestamp=timestamp).batch([("k", 5), ("k", 9), ("k", 2)])
    assert panes is not None
    assert panes[TIMESTAMP].to_list() == [expected]


@given(
    st.lists(st.integers(1, 9), max_size=8),
    st.integers(1, 4),
    st.none() | st.integers(1, 5),
)
def test_batch_boundaries_do_not_matter(sizes: list[int], size: int, every: int | None) -> None:
    values = [*range(sum(sizes))]
    whole, cut = Counting(size, every), Counting(size, every)
    expected = whole.play(*values) + whole.play(end=True)
    left = iter(values)
    parts = [pane for many in sizes for pane in cut.play(*(next(left) for _ in range(many)))]
    assert parts + cut.play(end=True) == expected
