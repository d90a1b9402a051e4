"""Triggers in columns: each played for many windows at once, none of them minding its neighbours."""

from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.kernel import triggers
from strandline.kernel.triggers import Moment
from strandline.model.triggers import Trigger


@dataclass
class Windows:
    """Three windows under one trigger; the second is the one that is played, the others never hear anything."""

    trigger: Trigger
    kept: pl.DataFrame = field(init=False)

    def __post_init__(self) -> None:
        self.kept = pl.DataFrame({"number": [0, 1, 2]}).with_columns(**triggers.columns(self.trigger))

    def test(self, *, new: int = 0, clock: int = 0, ended: bool = False) -> bool:
        """Elements come, the window is tested, and what should fire does."""
        mine = pl.col("number") == 1
        end = pl.when(mine & pl.lit(ended)).then(0).otherwise(1)
        moment = Moment(pl.when(mine).then(new).otherwise(0), pl.lit(0), end, 0, clock, lambda _: pl.lit(False))
        names = triggers.columns(self.trigger)
        heard = triggers.add(self.trigger, {name: pl.col(name) for name in names}, moment)
        self.kept = self.kept.with_columns(**heard)
        here = {name: pl.col(name) for name in names}
        should = triggers.should(self.trigger, here, moment)
        fired = triggers.fire(self.trigger, here, moment)
        verdicts = self.kept.with_columns(should.alias("fires"))["fires"].to_list()
        assert not verdicts[0]
        assert not verdicts[2]
        if verdicts[1]:
            after = {name: pl.when(mine).then(fired[name]).otherwise(pl.col(name)) for name in names}
            self.kept = self.kept.with_columns(**after)
        return bool(verdicts[1])

    @property
    def is_finished(self) -> bool:
        here = {name: pl.col(name) for name in triggers.columns(self.trigger)}
        return bool(self._mine(triggers.finished(self.trigger, here)))

    @property
    def deadline(self) -> Any:
        return self._mine(triggers.deadlines(self.trigger, 0, -1)[1])

    def _mine(self, expression: pl.Expr) -> Any:
        return self.kept.with_columns(expression.alias("told"))["told"][1]


def test_a_bare_watermark_trigger_speaks_once_at_the_end_and_is_finished() -> None:
    windows = Windows(sl.after_watermark())
    assert not windows.test(new=3)
    assert not windows.is_finished
    assert windows.test(ended=True)
    assert windows.is_finished


def test_early_firings_repeat_until_the_end_which_ends_them() -> None:
    windows = Windows(sl.after_watermark(early=sl.after_count(2), late=sl.after_count(1)))
    assert not windows.test(new=1)
    assert windows.test(new=1)
    assert not windows.test(new=1)
    assert windows.test(new=5)
    assert windows.test(ended=True)
    assert not windows.test(ended=True)
    assert not windows.is_finished


def test_late_firings_count_from_the_end_not_from_before() -> None:
    windows = Windows(sl.after_watermark(late=sl.after_count(2)))
    assert windows.test(new=5, ended=True)
    assert not windows.test(new=1, ended=True)
    assert windows.test(new=1, ended=True)
    assert not windows.test(new=1, ended=True)


def test_a_late_part_that_has_heard_nothing_stays_silent() -> None:
    windows = Windows(sl.after_watermark(late=sl.after_count(1)))
    assert windows.test(new=1, ended=True)
    assert not windows.test(ended=True)


def test_a_count_fires_with_at_least_n_and_is_finished() -> None:
    windows = Windows(sl.after_count(3))
    assert not windows.test(new=2)
    assert windows.test(new=5)
    assert windows.is_finished


def test_a_repeated_count_starts_over_from_zero_and_is_never_finished() -> None:
    windows = Windows(sl.repeatedly(sl.after_count(3)))
    assert windows.test(new=5)
    assert not windows.test(new=2)
    assert windows.test(new=1)
    assert not windows.is_finished


def test_processing_time_counts_from_the_first_element_and_fires_strictly_after() -> None:
    windows = Windows(sl.every(seconds=2))
    assert not windows.test(new=1, clock=1_000)
    assert windows.deadline == 3_000
    assert not windows.test(new=1, clock=2_500)
    assert windows.deadline == 3_000
    assert not windows.test(clock=3_000)
    assert windows.test(clock=3_001)
    assert windows.deadline is None
    assert not windows.test(clock=9_000)


def test_processing_time_never_fires_in_the_batch_that_set_its_target() -> None:
    windows = Windows(sl.after_processing_time(ms=0))
    assert not windows.test(new=1, clock=1_000)
    assert windows.test(clock=1_001)
    assert windows.is_finished


@pytest.mark.parametrize(
    ("arrival", "target"), [(61_000, 120_000), (119_999, 120_000), (120_000, 120_000), (120_001, 180_000)]
)
def test_an_aligned_target_is_the_next_boundary_and_an_exact_one_stays(arrival: int, target: int) -> None:
    windows = Windows(sl.repeatedly(sl.after_processing_time(aligned="1m")))
    windows.test(new=1, clock=arrival)
    assert windows.deadline == target


def test_an_aligned_target_minds_its_offset() -> None:
    windows = Windows(sl.repeatedly(sl.after_processing_time(seconds=5, aligned="1m", offset="10s")))
    windows.test(new=1, clock=66_000)
    assert windows.deadline == 130_000


def test_never_never_fires() -> None:
    windows = Windows(sl.never())
    assert not windows.test(new=99, clock=10**9, ended=True)
    assert not windows.is_finished


def test_an_early_target_is_forgotten_when_the_end_is_told() -> None:
    """Otherwise the window would be due, and its slice read, in every batch until it expires."""
    windows = Windows(sl.after_watermark(early=sl.every(seconds=2), late=sl.after_count(1)))
    windows.test(new=1, clock=1_000)
    assert windows.deadline == 3_000
    assert windows.test(clock=1_500, ended=True)
    assert windows.deadline is None


def test_a_late_clock_counts_from_the_first_late_element() -> None:
    windows = Windows(sl.after_watermark(late=sl.every(seconds=2)))
    assert windows.test(new=1, clock=1_000, ended=True)
    assert not windows.test(new=1, clock=5_000, ended=True)
    assert windows.deadline == 7_000
    assert windows.test(clock=7_001, ended=True)


def test_the_default_speaks_on_time_and_then_whenever_it_is_tested() -> None:
    windows = Windows(sl.repeatedly(sl.after_watermark()))
    assert not windows.test(new=1)
    assert windows.test(ended=True)
    assert windows.test(new=1, ended=True)
    assert not windows.is_finished


def test_the_first_of_several_ends_them_all() -> None:
    windows = Windows(sl.first_of(sl.after_count(3), sl.after_processing_time(seconds=1)))
    assert not windows.test(new=1, clock=0)
    assert windows.test(clock=1_001)
    assert windows.is_finished


def test_all_of_several_wait_for_the_last_and_remember_nothing_that_has_passed() -> None:
    windows = Windows(sl.all_of(sl.after_count(2), sl.after_processing_time(seconds=1)))
    assert not windows.test(new=2, clock=0)
    assert windows.test(clock=1_001)
    assert windows.is_finished


def test_a_sequence_hears_with_one_ear_at_a_time() -> None:
    windows = Windows(sl.in_sequence(sl.after_count(1), sl.after_count(2)))
    assert windows.test(new=5)
    assert not windows.test(new=1)
    assert not windows.is_finished
    assert windows.test(new=1)
    assert windows.is_finished


def test_until_counts_across_the_firings_of_what_it_ends() -> None:
    windows = Windows(sl.or_finally(sl.repeatedly(sl.after_count(1)), sl.after_count(3)))
    assert windows.test(new=1)
    assert windows.test(new=1)
    assert not windows.is_finished
    assert windows.test(new=1)
    assert windows.is_finished
