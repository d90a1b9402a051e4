"""Window columns: floored like time itself, on both sides of the epoch."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.kernel.blocks import AT, END, START
from strandline.kernel.windows import assign, span_of
from strandline.model.elements import Duration
from strandline.model.windows import Tumbling, WindowKind

TEN = 10_000


def windows_of(times: list[int], kind: WindowKind) -> list[tuple[int, int]]:
    return assign(pl.DataFrame({AT: times}, schema={AT: pl.Int64}), kind).select(START, END).rows()


def test_an_instant_finds_the_window_that_starts_at_or_before_it() -> None:
    found = windows_of([0, 1, 9_999, 10_000], sl.tumbling(seconds=10))
    assert found == [(0, TEN), (0, TEN), (0, TEN), (TEN, 2 * TEN)]


def test_times_before_the_epoch_are_floored_not_cut() -> None:
    found = windows_of([-1, -10_000, -10_001], sl.tumbling(seconds=10))
    assert found == [(-TEN, 0), (-TEN, 0), (-2 * TEN, -TEN)]


@pytest.mark.parametrize("offset", ["3s", "13s", "-7s", "-17s"])
def test_an_offset_moves_every_boundary_and_counts_modulo_the_size(offset: str) -> None:
    found = windows_of([-8_000, -7_001, 2_999, 3_000], sl.tumbling("10s", offset=offset))
    assert found == [(-17_000, -7_000), (-17_000, -7_000), (-7_000, 3_000), (3_000, 13_000)]


@given(
    at=st.integers(-(10**15), 10**15),
    size=st.integers(1, 10**9),
    offset=st.integers(-(10**10), 10**10),
)
def test_every_instant_lies_in_its_window_and_windows_lie_end_to_end(at: int, size: int, offset: int) -> None:
    kind = Tumbling(Duration(size), Duration(offset))
    ((start, end), after) = windows_of([at, at + size], kind)
    assert start <= at < end
    assert end - start == size
    assert (start - offset) % size == 0
    assert after == (end, end + size)


def test_no_elements_have_no_windows() -> None:
    assert windows_of([], sl.tumbling(seconds=10)) == []


def test_a_slice_of_state_is_as_long_as_a_window() -> None:
    assert span_of(sl.tumbling(seconds=10)) == TEN
