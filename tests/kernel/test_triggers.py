"""Triggers as column expressions: many windows at once, each independent of the others."""

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.kernel.window import triggers
from strandline.kernel.window.triggers import Moment
from strandline.model.elements import Timestamp
from strandline.model.triggers import Trigger
from strandline.reference import triggers as oracle
from tests.properties.histories import ALL_TRIGGERS

END_OF_WINDOW = 59_999


@dataclass
class Windows:
    """Three windows under one trigger; only the second one receives elements."""

    trigger: Trigger
    watermark: int = 0
    kept: pl.DataFrame = field(init=False)

    def __post_init__(self) -> None:
        self.kept = pl.DataFrame({"number": [0, 1, 2]}).with_columns(**triggers.columns(self.trigger))

    def test(self, *, new: int = 0, clock: int = 0, ended: bool = False) -> bool:
        """Add elements, test the trigger, and fire if it should."""
        mine = pl.col("number") == 1
        end = pl.when(mine & pl.lit(ended)).then(0).otherwise(1)
        return self._test(
            Moment(pl.when(mine).then(new).otherwise(0), pl.lit(0), end, 0, clock, lambda _: pl.lit(False))
        )

    def hear(self, *, earliest: int | None = None, watermark: int, holds: bool | None = False) -> bool:
        """Add an element or none, set the watermark and the result of conditions, and test the trigger."""
        self.watermark = watermark
        mine = pl.col("number") == 1
        new = pl.when(mine).then(int(earliest is not None)).otherwise(0)
        true = pl.when(mine).then(pl.lit(holds, pl.Boolean)).otherwise(False)
        end = pl.lit(END_OF_WINDOW)
        return self._test(Moment(new, pl.lit(earliest, pl.Int64), end, watermark, 0, lambda _: true))

    def _test(self, moment: Moment) -> bool:
        names = triggers.columns(self.trigger)
        updated = triggers.add(self.trigger, triggers.now(self.trigger), moment)
        self.kept = self.kept.with_columns(**updated)
        here = triggers.now(self.trigger)
        should = triggers.should(self.trigger, here, moment)
        fired = triggers.fire(self.trigger, here, moment)
        verdicts = self.kept.with_columns(should.alias("fires"))["fires"].to_list()
        assert not verdicts[0]
        assert not verdicts[2]
        if verdicts[1]:
            mine = pl.col("number") == 1
            after = {name: pl.when(mine).then(fired[name]).otherwise(pl.col(name)) for name in names}
            self.kept = self.kept.with_columns(**after)
        return bool(verdicts[1])

    @property
    def is_finished(self) -> bool:
        here = {name: pl.col(name) for name in triggers.columns(self.trigger)}
        return bool(self._mine(triggers.finished(self.trigger, here)))

    @property
    def due_at(self) -> Any:
        return self._mine(triggers.deadlines(self.trigger, self.watermark, -1)[0])

    @property
    def deadline(self) -> Any:
        return self._mine(triggers.deadlines(self.trigger, 0, -1)[1])

    def _mine(self, expression: pl.Expr) -> Any:
        return self.kept.with_columns(expression.alias("told"))["told"][1]


def test_a_bare_watermark_trigger_fires_once_at_the_end_and_is_finished() -> None:
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


def test_a_late_part_without_elements_does_not_fire() -> None:
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


def test_an_aligned_target_uses_its_offset() -> None:
    windows = Windows(sl.repeatedly(sl.after_processing_time(seconds=5, aligned="1m", offset="10s")))
    windows.test(new=1, clock=66_000)
    assert windows.deadline == 130_000


def test_never_never_fires() -> None:
    windows = Windows(sl.never())
    assert not windows.test(new=99, clock=10**9, ended=True)
    assert not windows.is_finished


def test_an_early_target_is_cleared_by_the_on_time_pane() -> None:
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


def test_the_default_fires_on_time_and_then_whenever_it_is_tested() -> None:
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


def test_only_the_current_part_of_a_sequence_receives_elements() -> None:
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


def test_event_time_waits_for_the_boundary_after_the_earliest_new_element() -> None:
    windows = Windows(sl.repeatedly(sl.after_event_time(seconds=5)))
    assert not windows.hear(earliest=12_000, watermark=9_000)
    assert windows.due_at == 15_000
    assert not windows.hear(earliest=3_000, watermark=4_999)
    assert windows.due_at == 5_000
    assert windows.hear(watermark=5_000)
    assert windows.due_at is None


def test_event_time_waits_no_longer_than_to_the_end_of_the_window() -> None:
    windows = Windows(sl.after_event_time(minutes=5))
    assert not windows.hear(earliest=12_000, watermark=0)
    assert windows.due_at == END_OF_WINDOW
    assert windows.hear(watermark=END_OF_WINDOW)
    assert windows.is_finished


@pytest.mark.parametrize(("holds", "fires"), [(True, True), (False, False), (None, False)])
def test_a_condition_fires_only_when_it_surely_holds(holds: bool | None, fires: bool) -> None:
    windows = Windows(sl.when("total > 1"))
    assert windows.hear(earliest=0, watermark=0, holds=holds) is fires
    assert windows.is_finished is fires


def test_a_target_that_has_been_passed_is_no_deadline() -> None:
    """Otherwise a window whose trigger waits for something else would be read in every batch."""
    windows = Windows(sl.all_of(sl.after_event_time(seconds=5), sl.after_count(9)))
    assert not windows.hear(earliest=0, watermark=4_000)
    assert windows.due_at == 5_000
    assert not windows.hear(watermark=6_000)
    assert windows.due_at is None


def test_conditions_on_the_last_pane_are_detected() -> None:
    assert triggers.reads_last(sl.repeatedly(sl.when("last.total is None or total > last.total")))
    assert not triggers.reads_last(sl.repeatedly(sl.first_of(sl.when("total > 1"), sl.after_count(1))))
    found = triggers.conditions(sl.after_watermark(early=sl.when("total > 1"), late=sl.when("n > 2")))
    assert [condition.text for condition in found] == ["total > 1", "n > 2"]


def test_kept_columns_are_named_by_their_place_in_the_tree() -> None:
    """Kept in checkpoints, so the names stay."""
    tree = sl.after_watermark(early=sl.all_of(sl.after_count(2)), late=sl.after_processing_time(seconds=1))
    assert [*triggers.columns(tree)] == [
        "@trigger.done",
        "@trigger.0.done",
        "@trigger.0.0.done",
        "@trigger.0.0.count",
        "@trigger.1.done",
        "@trigger.1.target",
    ]


MANY = 4
Batch = tuple[list[list[int]], int, int, list[bool]]
"""The times of new elements per window, the advance of the watermark and of the clock, and the result of conditions."""

batches: st.SearchStrategy[Batch] = st.tuples(
    st.lists(st.lists(st.integers(0, 40_000), max_size=3), min_size=MANY, max_size=MANY),
    st.integers(0, 9_000),
    st.integers(0, 6_000),
    st.lists(st.booleans(), min_size=MANY, max_size=MANY),
)


@dataclass
class Both:
    """Windows with a trigger in columns, and each of them on the oracle."""

    trigger: Trigger
    merging: bool
    watermark: int = 0
    clock: int = 0

    def __post_init__(self) -> None:
        ends = [10_000 * (number + 1) for number in range(MANY)]
        self.kept = pl.DataFrame({"number": range(MANY), "end": ends}).with_columns(**triggers.columns(self.trigger))
        self.states = [oracle.fresh(self.trigger)] * MANY

    def play(self, batch: Batch) -> None:
        arrivals, watermark, clock, holds = batch
        before = self.watermark, self.clock
        self.watermark, self.clock = self.watermark + watermark, self.clock + clock
        self.kept = self.kept.with_columns(
            pl.Series("new", [len(times) for times in arrivals]),
            pl.Series("earliest", [min(times, default=None) for times in arrivals], pl.Int64),
            pl.Series("holds", holds),
        )
        updated = triggers.add(self.trigger, triggers.now(self.trigger), self.moment())
        self.kept = self.kept.with_columns(**updated)
        for number, times in enumerate(arrivals):
            if times:
                arrived = oracle.Arrivals([Timestamp(time) for time in times], Timestamp(self.clock))
                self.states[number] = oracle.on_elements(
                    self.trigger, self.states[number], arrived, Timestamp(self.end(number)), merging=self.merging
                )
        self.same()
        now = [self.now(number, holds[number]) for number in range(MANY)]
        was = [replace(each, watermark=Timestamp(before[0]), clock=Timestamp(before[1])) for each in now]
        pairs = [*zip(self.states, now, was, strict=True)]
        due = triggers.due(self.trigger, replace(self.moment(), watermark=before[0], clock=before[1]), self.moment())
        assert self.asked(due) == [oracle.is_due(self.trigger, state, old, new) for state, new, old in pairs]
        should = triggers.should(self.trigger, triggers.now(self.trigger), self.moment())
        verdicts = [oracle.should_fire(self.trigger, state, new) for state, new, _ in pairs]
        assert self.asked(should) == verdicts
        self.fire(verdicts, now)

    def fire(self, verdicts: list[bool], now: list[oracle.Now]) -> None:
        """Fire by the verdicts; a finished trigger closes its window, and a new window replaces it."""
        mine = pl.Series(verdicts)
        fired = triggers.fire(self.trigger, triggers.now(self.trigger), self.moment())
        self.kept = self.kept.with_columns(
            **{name: pl.when(mine).then(fired[name]).otherwise(pl.col(name)) for name in triggers.columns(self.trigger)}
        )
        for number, fires in enumerate(verdicts):
            if fires:
                self.states[number] = oracle.on_fire(self.trigger, self.states[number], now[number])
        self.same()
        over = [oracle.is_finished(self.trigger, state) for state in self.states]
        assert self.asked(triggers.finished(self.trigger, triggers.now(self.trigger))) == over
        initial = triggers.columns(self.trigger)
        self.kept = self.kept.with_columns(
            **{name: pl.when(pl.Series(over)).then(value).otherwise(pl.col(name)) for name, value in initial.items()}
        )
        self.states = [
            oracle.fresh(self.trigger) if done else state for state, done in zip(self.states, over, strict=True)
        ]

    def merge(self) -> None:
        """Merge the first two windows, and the last two."""
        pairs = self.kept.with_columns(number=pl.col("number") // 2).group_by("number", maintain_order=True)
        gathered = pairs.agg(pl.col("end").max(), *triggers.merging(self.trigger))
        past = pl.col("end") <= self.watermark
        known = {name: pl.col(name) for name in gathered.columns}
        state = triggers.merged(self.trigger, {**triggers.now(self.trigger), **known}, past)
        self.kept = gathered.with_columns(**{name: state[name] for name in triggers.columns(self.trigger)})
        self.states = [
            oracle.merged(
                self.trigger,
                self.states[number : number + 2],
                is_past_end=self.watermark >= self.kept["end"][number // 2],
            )
            for number in range(0, MANY, 2)
        ]
        self.same()

    def moment(self) -> Moment:
        new, earliest, end = pl.col("new"), pl.col("earliest"), pl.col("end")
        return Moment(new, earliest, end, self.watermark, self.clock, lambda _: pl.col("holds"), self.merging)

    def now(self, number: int, holds: bool) -> oracle.Now:
        end = Timestamp(self.end(number))
        return oracle.Now(end, Timestamp(self.watermark), Timestamp(self.clock), lambda _: holds, self.merging)

    def end(self, number: int) -> int:
        return int(self.kept["end"][number])

    def asked(self, expression: pl.Expr) -> list[Any]:
        return self.kept.with_columns(expression.alias("told"))["told"].to_list()

    def same(self) -> None:
        """Check that every column equals the state of the oracle at the same place of the tree."""
        for name in triggers.columns(self.trigger):
            *places, kind = name.removeprefix(f"{triggers.ROOT}.").split(".")
            for row, state in enumerate(self.states):
                node = reduce(lambda above, place: above.parts[int(place)], places, state)
                expected = getattr(node, kind)
                assert self.kept[name][row] == (expected.ms if isinstance(expected, Timestamp) else expected), name


@given(trigger=ALL_TRIGGERS, merging=st.booleans(), played=st.lists(batches, min_size=1, max_size=5))
def test_every_trigger_tree_agrees_with_the_oracle(trigger: Trigger, merging: bool, played: list[Batch]) -> None:
    both = Both(trigger, merging)
    for batch in played:
        both.play(batch)
    if merging:
        both.merge()
