"""Window columns: floored like time itself, on both sides of the epoch."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.kernel.blocks.block import AT, END, GAP, NEWEST, OFFSET, START
from strandline.kernel.state.partitioning import span_of
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.kernel.window.assign import assign, expires
from strandline.model.elements import Duration, Element, Timestamp
from strandline.model.panes import DeadReason
from strandline.model.windows import Tumbling, WindowKind
from strandline.reference.windows import windows_of as windows_of_one
from tests.kernel.batches import asking

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


KINDS: list[WindowKind] = [
    sl.tumbling(seconds=10),
    sl.tumbling("7s", offset="-3s"),
    sl.sliding("10s", every="3s"),
    sl.sliding("10s", every="5s", offset="2s"),
    sl.sliding("3s", every="10s"),
    sl.cumulating("12s", step="4s"),
    sl.cumulating("12s", step="3s", offset="5s"),
    sl.session("10s"),
    sl.everything(),
]


def oracle(at: int, kind: WindowKind) -> list[tuple[int, int]]:
    windows = windows_of_one(Element(Timestamp(at), "k"), kind)
    assert not isinstance(windows, DeadReason)
    return [(window.start.ms, window.end.ms) for window in windows]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@given(times=st.lists(st.integers(-(10**15), 10**15) | st.integers(-30_000, 30_000), max_size=5))
def test_every_kind_of_window_agrees_with_the_oracle(kind: WindowKind, times: list[int]) -> None:
    assert sorted(windows_of(times, kind)) == sorted(window for at in times for window in oracle(at, kind))


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@pytest.mark.parametrize("at", [FOREVER - 1, FOREVER - 9_000, NEVER + 1, NEVER + 9_000])
def test_windows_are_clamped_to_the_minimum_and_maximum_timestamps(kind: WindowKind, at: int) -> None:
    assert sorted(windows_of([at], kind)) == sorted(oracle(at, kind))


@pytest.mark.parametrize("kind", [sl.sliding("10s", every="3s"), sl.cumulating("12s", step="4s")])
def test_one_window_of_an_element_expires_last(kind: WindowKind) -> None:
    placed = assign(pl.DataFrame({AT: [0, 5_000, -1], OFFSET: [0, 1, 2]}), kind)
    last = placed.filter(pl.col(END) == pl.col(END).max().over(OFFSET))
    assert placed.filter(NEWEST).sort(OFFSET).rows() == last.sort(OFFSET).rows()


def test_a_gap_may_be_a_column() -> None:
    frame = pl.DataFrame({AT: [0, 1_000], GAP: [5_000, FOREVER]})
    assert assign(frame, sl.session(column="gap")).select(START, END).rows() == [(0, 5_000), (1_000, FOREVER)]


def test_custom_and_count_windows_are_not_assigned_here() -> None:
    frame = pl.DataFrame({AT: [0], START: [5], END: [7]})
    assert assign(frame, sl.custom(start="from", end="to")).equals(frame)
    assert assign(frame, sl.count_window(3)).equals(frame)


def test_no_elements_have_no_windows() -> None:
    assert windows_of([], sl.tumbling(seconds=10)) == []


def test_a_slice_of_state_is_as_long_as_a_window() -> None:
    assert span_of(sl.tumbling(seconds=10)) == TEN
    assert span_of(sl.cumulating("12s", step="4s")) == 12_000


def test_a_slice_of_overlapping_windows_covers_one_period() -> None:
    assert span_of(sl.sliding("1m", every="10s")) == TEN


@pytest.mark.parametrize(
    "kind", [sl.session("1m"), sl.everything(), sl.count_window(3), sl.custom(start="from", end="to")]
)
def test_windows_without_common_bounds_have_no_span(kind: WindowKind) -> None:
    assert span_of(kind) is None


@pytest.mark.parametrize(
    ("end", "allowed", "gone"),
    [
        (10_000, 0, 9_999),
        (10_000, 5_000, 14_999),
        (10_000, None, FOREVER),
        (FOREVER, 0, FOREVER),
        (FOREVER - 5, 9, FOREVER),
    ],
)
def test_a_window_expires_after_its_last_instant_and_its_lateness(end: int, allowed: int | None, gone: int) -> None:
    frame = pl.DataFrame({END: [end]})
    assert frame.select(expires(asking(lateness=allowed)).alias("gone")).item() == gone
