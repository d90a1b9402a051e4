"""Shared slices: which steps use them, and which windows an instant has."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.kernel.blocks.block import AT, END, START
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.kernel.window.assign import assign, max_timestamp
from strandline.kernel.window.shared_slices import (
    first_end_watermark,
    first_open_instant,
    last_end,
    last_end_watermark,
    next_end_watermark,
    step_over_slices,
    uses_shared_slices,
    windows_ending,
)
from strandline.model.elements import Duration
from strandline.model.panes import Emit, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.windows import Cumulating, Sliding
from tests.kernel.batches import asking

SLIDING = sl.sliding("60s", every="1s")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"trigger": sl.after_watermark()},
        {"trigger": sl.after_watermark(late=sl.after_count(2))},
        {"trigger": sl.never()},
        {"accumulation": sl.retracting, "final_pane": Emit.ALWAYS, "lateness": 60_000},
        {"window": sl.cumulating("60s", step="10s")},
    ],
    ids=str,
)
def test_overlapping_windows_without_early_panes_use_shared_slices(options: dict[str, Any]) -> None:
    assert uses_shared_slices(asking(**({"window": SLIDING} | options)))


@pytest.mark.parametrize(
    "options",
    [
        {"trigger": sl.after_watermark(early=sl.after_count(1))},
        {"trigger": sl.repeatedly(sl.after_count(1))},
        {"trigger": sl.first_of(sl.after_watermark(), sl.after_count(3))},
        {"pane_timestamp": PaneTimestamp.EARLIEST},
        {"evictor": sl.keep_last(2)},
        {"window": sl.tumbling("10s")},
        {"window": sl.sliding("10s", every="10s")},
        {"window": sl.sliding("3s", every="10s")},
        {"window": sl.cumulating("10s", step="10s")},
        {"window": sl.session("10s")},
    ],
    ids=str,
)
def test_windows_with_other_state_before_their_end_do_not_use_shared_slices(options: dict[str, Any]) -> None:
    assert not uses_shared_slices(asking(**({"window": SLIDING} | options)))


KINDS = st.one_of(
    st.builds(
        lambda every, more, offset: Sliding(Duration(every + more), Duration(every), Duration(offset)),
        st.integers(1, 12),
        st.integers(1, 40),
        st.integers(-50, 50),
    ),
    st.builds(
        lambda step, many, offset: Cumulating(Duration(step * many), Duration(step), Duration(offset)),
        st.integers(1, 12),
        st.integers(2, 8),
        st.integers(-50, 50),
    ),
)
TIMES = st.one_of(st.integers(-200, 200), st.integers(NEVER + 1, NEVER + 60), st.integers(FOREVER - 60, FOREVER - 1))
EVERYTHING = st.just(NEVER), st.just(FOREVER)


def windows_of(definition: WindowedStep, at: int) -> list[tuple[int, int]]:
    """Return the windows of an element at this time."""
    return sorted(assign(pl.DataFrame({AT: [at]}), definition.window).select(START, END).rows())


def end_watermarks(definition: WindowedStep, at: int) -> list[int]:
    """Return the watermarks that end these windows."""
    return sorted(assign(pl.DataFrame({AT: [at]}), definition.window).select(max_timestamp()).to_series())


@given(kind=KINDS, at=TIMES)
def test_all_instants_of_a_shared_slice_have_the_same_windows(kind: Sliding | Cumulating, at: int) -> None:
    definition = asking(window=kind)
    ((start, end),) = assign(pl.DataFrame({AT: [at]}), step_over_slices(definition).window).select(START, END).rows()
    assert start <= at < end
    assert windows_of(definition, start) == windows_of(definition, at) == windows_of(definition, end - 1)


@given(kind=KINDS, at=TIMES, watermark=st.one_of(TIMES, *EVERYTHING, st.just(FOREVER - 2)))
def test_the_first_next_and_last_window_end_of_an_instant(kind: Any, at: int, watermark: int) -> None:
    definition = asking(window=kind)
    found = end_watermarks(definition, at)
    element = pl.DataFrame({AT: [at]})
    assert element.select(first_end_watermark(definition)).item() == found[0]
    assert element.select(max_timestamp(last_end(definition))).item() == found[-1] == last_end_watermark(definition, at)
    first, later = first_open_instant(definition, watermark), [end for end in found if end > watermark]
    assert (first is not None and at >= first) == bool(later)
    if later:
        assert next_end_watermark(definition, at, watermark) == later[0]


@given(
    kind=KINDS,
    times=st.one_of(
        st.lists(st.integers(-60, 60), min_size=1, max_size=4),
        st.lists(st.integers(NEVER + 1, NEVER + 60), min_size=1, max_size=4),
        st.lists(st.integers(FOREVER - 60, FOREVER - 1), min_size=1, max_size=4),
    ),
    marks=st.tuples(*[st.one_of(TIMES, *EVERYTHING)] * 2).map(sorted),
)
def test_the_windows_that_end_while_the_watermark_moves(kind: Any, times: list[int], marks: list[int]) -> None:
    definition = asking(window=kind)
    before, after = marks
    first, last = min(times), max(times)
    found_windows = set(windows_ending(definition, first, last, before, after))
    instants = range(first, last + 1)
    every = {window for at in instants for window in windows_of(definition, at)}
    assert found_windows == {(start, end) for start, end in every if before < (end - (end < FOREVER)) <= after}
    assert list(windows_ending(definition, first, last, after, after)) == []
