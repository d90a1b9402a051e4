"""Slice deltas: output and savepoints are the same with and without deltas."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.kernel.state import slice_deltas
from strandline.model.aggregates import Aggregate, Count, Max, Mean, Sum
from tests.properties.crowds import check, crowds
from tests.properties.histories import ALL_TRIGGERS, History, histories, steps
from tests.properties.test_crowds import EACH as CROWDS
from tests.properties.test_crowds import KEYS, on_kernel
from tests.properties.test_crowds import calm as calm_crowds
from tests.properties.test_kernel_agrees import EACH, agree, restarted
from tests.properties.test_moving import PLACES
from tests.properties.test_moving import agree as agree_moved
from tests.properties.test_moving import calm as calm_moves

IN_ROWS: Final[tuple[tuple[str, Aggregate], ...]] = (
    ("n", Count()),
    ("total", Sum("v")),
    ("top", Max("v")),
    ("average", Mean("v")),
)
"""Aggregates without items."""

ALWAYS, HALF = 0, 2
FEW, MANY = 2, 4
"""Numbers of deltas that are merged."""
ENOUGH: Final = 48
KINDS: Final = {"first", "again", "several", "together", "new", "others", "holds"}


@contextmanager
def kept_beside(seldom: int = ALWAYS, alike: int = FEW) -> Iterator[list[Any]]:
    """Write deltas for slices of any size: always, or while fewer than a share of their rows change."""
    seen: list[Any] = []
    real = slice_deltas.end

    def end(each: slice_deltas.SliceChanges, *rest: Any, **more: Any) -> Any:
        found = real(each, *rest, **more)
        seen.append((each, found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slice_deltas, "LARGE", 0)
        patch.setattr(slice_deltas, "MIN_RATIO", seldom)
        patch.setattr(slice_deltas, "MERGE_FACTOR", alike)
        patch.setattr(slice_deltas, "end", end)
        yield seen


@settings(calm_crowds, max_examples=EACH)
@given(
    history=histories(steps(triggers=ALL_TRIGGERS)),
    places=st.sets(st.integers(0, 30)),
    alike=st.sampled_from([FEW, MANY]),
)
def test_what_is_told_does_not_depend_on_what_is_kept_beside(history: History, places: set[int], alike: int) -> None:
    with kept_beside(alike=alike):
        agree(restarted(history.under(aggregates=IN_ROWS), places))


@settings(calm_crowds, max_examples=CROWDS)
@given(history=crowds(KEYS), seldom=st.sampled_from([ALWAYS, HALF]), alike=st.sampled_from([FEW, MANY]))
def test_every_key_of_a_crowd_is_told_the_same(history: History, seldom: int, alike: int) -> None:
    with kept_beside(seldom, alike):
        check(history.under(aggregates=IN_ROWS), on_kernel)


@pytest.mark.slow
@calm_moves
@given(history=histories(steps(triggers=ALL_TRIGGERS)), places=PLACES, alike=st.sampled_from([FEW, MANY]))
def test_a_savepoint_holds_windows_as_they_are(history: History, places: set[int], alike: int) -> None:
    with kept_beside(alike=alike):
        agree_moved(restarted(history.under(aggregates=IN_ROWS), places))


@pytest.mark.slow
def test_these_histories_have_changes_of_every_kind() -> None:
    """New windows in deltas, windows that change again, several deltas, and merged deltas."""
    kinds = set[str]()

    @settings(calm_crowds, max_examples=ENOUGH)
    @given(history=crowds(KEYS))
    def look(history: History) -> None:
        if kinds == KINDS:
            return
        with kept_beside(HALF) as seen:
            check(history.under(aggregates=IN_ROWS), on_kernel)
        for each, (_, entry) in seen:
            kinds.update(["again"] if each.entry.deltas else ["first"])
            kinds.update(["several"] if entry.deltas > 1 else [])
            kinds.update(["together"] if entry.deltas <= each.entry.deltas else [])
            kinds.update(["new"] if entry.rows > each.entry.rows else [])
            kinds.update(["others"] if len(each.others) else [])
            kinds.update(["holds"] if each.entry.hold is not None else [])

    look()
    assert kinds == KINDS
