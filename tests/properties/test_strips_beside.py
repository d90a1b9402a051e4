"""The side block of shared slices: output and savepoints are the same with and without it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.kernel.window import shared_slice_store
from tests.properties.crowds import check, crowds
from tests.properties.histories import SHARING, History, histories
from tests.properties.test_crowds import EACH as CROWDS
from tests.properties.test_crowds import KEYS, on_kernel
from tests.properties.test_crowds import calm as calm_crowds
from tests.properties.test_kernel_agrees import PLAIN, UNLIKE, agree, calm, restarted, thinned
from tests.properties.test_moving import PLACES
from tests.properties.test_moving import agree as agree_moved
from tests.properties.test_moving import calm as calm_moves

ALWAYS, HALF = 0, 2
ENOUGH = 12
KINDS = {"put beside", "again", "taken in"}


@contextmanager
def put_beside(seldom: int) -> Iterator[set[str]]:
    """Use the side block for slices of any size: always, or for additions below a share of their rows."""
    seen: set[str] = set()
    real = shared_slice_store.add

    def add(before: shared_slice_store.SharedSliceState, *rest: Any) -> shared_slice_store.SharedSliceState:
        after = real(before, *rest)
        seen.update(["put beside"] if after.side_block_changed and after.beside is not None else [])
        seen.update(["again"] if after.side_block_changed and before.beside is not None else [])
        seen.update(["taken in"] if before.beside is not None and after.changed & before.slices.keys() else [])
        return after

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_slice_store, "LARGE", 0)
        patch.setattr(shared_slice_store, "MIN_RATIO", seldom)
        patch.setattr(shared_slice_store, "add", add)
        yield seen


seldoms = st.sampled_from([ALWAYS, HALF])


@pytest.mark.slow
@calm
@given(history=histories(SHARING), places=st.sets(st.integers(0, 30)), seldom=seldoms)
def test_what_is_told_does_not_depend_on_what_is_put_beside(history: History, places: set[int], seldom: int) -> None:
    with put_beside(seldom):
        agree(restarted(thinned(history.under(aggregates=(*PLAIN, *UNLIKE))), places))


@pytest.mark.slow
@calm_moves
@given(history=histories(SHARING), places=PLACES, seldom=seldoms)
def test_a_savepoint_holds_strips_as_they_are(history: History, places: set[int], seldom: int) -> None:
    with put_beside(seldom):
        agree_moved(restarted(thinned(history.under(aggregates=(*PLAIN, *UNLIKE))), places))


@settings(calm_crowds, max_examples=CROWDS)
@given(history=crowds(KEYS, sharing=1), seldom=seldoms)
def test_every_key_of_a_crowd_is_told_the_same(history: History, seldom: int) -> None:
    with put_beside(seldom):
        check(history, on_kernel)


@pytest.mark.slow
def test_these_histories_put_strips_beside_slices_and_take_them_in_again() -> None:
    kinds = set[str]()

    @settings(calm_crowds, max_examples=ENOUGH)
    @given(history=crowds(KEYS, sharing=1))
    def look(history: History) -> None:
        if kinds == KINDS:
            return
        with put_beside(HALF) as seen:
            check(history, on_kernel)
        kinds.update(seen)

    look()
    assert kinds == KINDS
