"""Numeric sort paths give the same output as the general ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.kernel.aggregation import accumulators
from strandline.kernel.blocks import sorting
from strandline.kernel.window import window_rows
from strandline.model.aggregates import Aggregate, Count, Max, Min, Sum
from tests.properties.crowds import check, crowds
from tests.properties.histories import History
from tests.properties.test_crowds import EACH, on_kernel
from tests.properties.test_crowds import calm as calm_crowds

ENDS: Final = (-(2**63), 2**63 - 1)
NUMBERS: Final[tuple[Any, ...]] = (*range(-20, 27), *ENDS)
ADDING: Final[tuple[tuple[str, Aggregate], ...]] = (
    ("n", Count()), ("given", Count("v")), ("total", Sum("v")), ("least", Min("v")), ("top", Max("v")),
)  # fmt: skip
"""Aggregates that fold integers."""
ENOUGH: Final = 12
WAYS: Final = {"fold_by_key", "not fold_by_key", "replaced_in_order"}


@contextmanager
def always_sorted() -> Iterator[list[str]]:
    """Use the numeric sort paths for any number of rows; yield the paths taken."""
    taken: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "WORTH_IT", 1)
        patch.setattr(window_rows, "_FEW_TOUCHED", 0)
        for module, name in ((accumulators, "fold_by_key"), (window_rows, "replaced_in_order")):
            patch.setattr(module, name, _told(getattr(module, name), name, taken))
        yield taken


def _told(real: Any, name: str, taken: list[str]) -> Any:
    def asked(*what: Any) -> pl.DataFrame | None:
        found: pl.DataFrame | None = real(*what)
        taken.append(name if found is not None else f"not {name}")
        return found

    return asked


@settings(calm_crowds, max_examples=EACH)
@given(history=crowds(NUMBERS), adding=st.booleans())
def test_every_number_of_a_crowd_is_told_the_same(history: History, adding: bool) -> None:
    with always_sorted():
        check(history.under(aggregates=ADDING) if adding else history, on_kernel)


@pytest.mark.slow
def test_these_histories_go_every_way() -> None:
    """Aggregated by sorting or not, because values are missing; windows replaced in order or not."""
    ways = set[str]()

    @settings(calm_crowds, max_examples=ENOUGH)
    @given(history=crowds(NUMBERS))
    def look(history: History) -> None:
        if ways >= WAYS:
            return
        with always_sorted() as taken:
            check(history.under(aggregates=ADDING), on_kernel)
        ways.update(taken)

    look()
    assert ways >= WAYS
