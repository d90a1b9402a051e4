"""Triggers as folds, node by node, where stories would need too many steps."""

from collections.abc import Sequence

import pytest

from strandline.model.elements import Timestamp
from strandline.model.expressions import Expression
from strandline.model.triggers import (
    Trigger,
    after_count,
    after_event_time,
    after_processing_time,
    after_watermark,
    all_of,
    first_of,
    in_sequence,
    never,
    or_finally,
    repeatedly,
    when,
)
from strandline.reference.triggers import (
    Arrivals,
    Now,
    TriggerState,
    cleared,
    fresh,
    is_due,
    is_finished,
    merged,
    on_elements,
    on_fire,
    should_fire,
)

END = Timestamp(10_000)
TWO = after_count(2)


def came(
    trigger: Trigger, state: TriggerState, *seconds: float, clock: float = 0, merging: bool = False
) -> TriggerState:
    times = [Timestamp(round(second * 1000)) for second in seconds]
    return on_elements(trigger, state, Arrivals(times, Timestamp(round(clock * 1000))), END, merging=merging)


def now(watermark: float = -1, clock: float = 0, *, holds: bool = False, merging: bool = False) -> Now:
    def output(_: Expression) -> bool:
        return holds

    return Now(END, Timestamp(round(watermark * 1000)), Timestamp(round(clock * 1000)), output, merging)


def fired(trigger: Trigger, state: TriggerState, at: Now) -> TriggerState:
    assert should_fire(trigger, state, at)
    return on_fire(trigger, state, at)


def targets(state: TriggerState) -> Sequence[int | None]:
    return [
        None if state.target is None else state.target.ms,
        *(each for part in state.parts for each in targets(part)),
    ]


def test_the_on_time_pane_fires_once() -> None:
    trigger = after_watermark()
    state = came(trigger, fresh(trigger), 1)
    assert not should_fire(trigger, state, now(9.998))
    state = fired(trigger, state, now(10))
    assert is_finished(trigger, state)
    assert not should_fire(trigger, state, now(10))


def test_a_count_starts_over_only_if_it_is_repeated() -> None:
    state = fired(TWO, came(TWO, fresh(TWO), 1, 2, 3), now())
    assert is_finished(TWO, state)
    again = repeatedly(TWO)
    state = fired(again, came(again, fresh(again), 1, 2, 3), now())
    assert not is_finished(again, state)
    assert not should_fire(again, came(again, state, 1), now())


def test_a_delay_is_over_strictly_after_it_and_later_elements_do_not_move_it() -> None:
    trigger = after_processing_time("5s")
    state = came(trigger, came(trigger, fresh(trigger), 1, clock=3), 1, clock=7)
    assert targets(state) == [8_000]
    assert not should_fire(trigger, state, now(clock=8))
    assert should_fire(trigger, state, now(clock=8.001))


@pytest.mark.parametrize(("arrival", "target"), [(0, 5_000), (1, 10_000), (5, 10_000), (5.001, 15_000)])
def test_an_aligned_delay_is_rounded_up_and_an_exact_multiple_stays(arrival: float, target: int) -> None:
    trigger = after_processing_time("5s", aligned="5s")
    assert targets(came(trigger, fresh(trigger), 1, clock=arrival)) == [target]


def test_an_offset_moves_the_aligned_boundaries() -> None:
    trigger = after_processing_time(aligned="10s", offset="3s")
    assert targets(came(trigger, fresh(trigger), 1, clock=4)) == [13_000]


def test_event_time_waits_for_the_boundary_after_the_earliest_element_but_not_past_the_end() -> None:
    trigger = after_event_time("4s")
    state = came(trigger, fresh(trigger), 5)
    assert targets(state) == [8_000]
    state = came(trigger, state, 3, 9)
    assert targets(state) == [4_000]
    assert not should_fire(trigger, state, now(3.999))
    assert should_fire(trigger, state, now(4))
    assert targets(came(trigger, fresh(trigger), 9)) == [10_000]


def test_a_condition_is_a_level() -> None:
    trigger = repeatedly(when("n > 1"))
    state = fired(trigger, fresh(trigger), now(holds=True))
    assert should_fire(trigger, state, now(holds=True))
    assert not should_fire(trigger, state, now())
    assert is_finished(when("n > 1"), fired(when("n > 1"), TriggerState(), now(holds=True)))


def test_early_fires_and_is_cleared_until_the_end_clears_late() -> None:
    trigger = after_watermark(early=TWO, late=after_count(1))
    state = came(trigger, fresh(trigger), 1, 2)
    state = fired(trigger, state, now(5))
    assert state == fresh(trigger)
    state = fired(trigger, came(trigger, state, 3), now(10))
    assert state.done
    assert not is_finished(trigger, state)
    assert not should_fire(trigger, state, now(11))
    state = came(trigger, state, 4)
    assert fired(trigger, state, now(11)) == fired(trigger, came(trigger, state, 4), now(12))


def test_early_alone_is_finished_with_the_end() -> None:
    trigger = after_watermark(early=TWO)
    assert is_finished(trigger, fired(trigger, fresh(trigger), now(10)))


def test_early_may_be_a_sequence_that_starts_over() -> None:
    trigger = after_watermark(early=in_sequence(after_count(1), TWO))
    state = fired(trigger, came(trigger, fresh(trigger), 1), now())
    assert not should_fire(trigger, came(trigger, state, 1), now())
    state = fired(trigger, came(trigger, state, 1, 2), now())
    assert state == fresh(trigger)


def test_elements_reach_only_the_current_part_unless_windows_merge() -> None:
    sequence = in_sequence(TWO, after_processing_time("5s"))
    assert targets(came(sequence, fresh(sequence), 1)) == [None, None, None]
    assert targets(came(sequence, fresh(sequence), 1, merging=True)) == [None, None, 5_000]
    both = after_watermark(early=TWO, late=after_processing_time("5s"))
    assert targets(came(both, fresh(both), 1)) == [None, None, None]
    assert targets(came(both, fresh(both), 1, merging=True)) == [None, None, 5_000]
    assert targets(came(both, fired(both, fresh(both), now(10)), 1)) == [None, None, 5_000]


def test_the_first_of_several_clears_the_others() -> None:
    trigger = repeatedly(first_of(TWO, after_processing_time("5s")))
    state = fired(trigger, came(trigger, fresh(trigger), 1), now(clock=6))
    assert not should_fire(trigger, came(trigger, state, 1, clock=7), now(clock=7))
    assert is_finished(first_of(TWO), fired(first_of(TWO), came(first_of(TWO), fresh(first_of(TWO)), 1, 2), now()))


def test_parts_that_have_not_fired_are_cleared() -> None:
    """The combination is finished then, but where windows merge, a part may be revived."""
    trigger = first_of(TWO, after_processing_time("5s"))
    assert fired(trigger, came(trigger, fresh(trigger), 1), now(clock=6)).parts == (TriggerState(), TriggerState(True))
    until = or_finally(TWO, after_processing_time("5s"))
    assert fired(until, came(until, fresh(until), 1), now(clock=6)).parts == (TriggerState(), TriggerState(True))


def test_all_of_several_must_be_ready_at_the_same_test() -> None:
    trigger = all_of(TWO, after_processing_time("5s"))
    state = came(trigger, fresh(trigger), 1, 2)
    assert not should_fire(trigger, state, now(clock=5))
    state = fired(trigger, state, now(clock=6))
    assert is_finished(trigger, state)


def test_all_of_does_not_test_finished_parts() -> None:
    trigger = all_of(TWO, after_watermark())
    state = TriggerState(parts=(TriggerState(done=True), TriggerState(parts=(TriggerState(), TriggerState()))))
    assert should_fire(trigger, state, now(10))
    assert came(trigger, state, 1).parts[0] == TriggerState(done=True)


def test_a_sequence_is_finished_with_its_last_part() -> None:
    trigger = in_sequence(after_count(1), after_watermark())
    state = fired(trigger, came(trigger, fresh(trigger), 1), now())
    assert not is_finished(trigger, state)
    assert not should_fire(trigger, came(trigger, state, 1), now())
    assert is_finished(trigger, fired(trigger, state, now(10)))


def test_a_sequence_in_merging_windows_clears_every_part_when_one_fires() -> None:
    trigger = in_sequence(after_count(1), TWO)
    state = fired(trigger, came(trigger, fresh(trigger), 1, merging=True), now(merging=True))
    assert not should_fire(trigger, came(trigger, state, 1, merging=True), now(merging=True))
    assert should_fire(trigger, came(trigger, state, 1, 2, merging=True), now(merging=True))


def test_finally_counts_across_the_firings_of_main() -> None:
    trigger = or_finally(repeatedly(after_count(1)), after_count(3))
    state = fresh(trigger)
    for _ in range(2):
        state = fired(trigger, came(trigger, state, 1), now())
        assert not is_finished(trigger, state)
    state = fired(trigger, came(trigger, state, 1), now())
    assert is_finished(trigger, state)


def test_never_never_fires() -> None:
    assert not should_fire(never(), came(never(), fresh(never()), 1), now(99, 99, holds=True))
    assert not is_finished(never(), on_fire(never(), fresh(never()), now()))
    assert merged(never(), [fresh(never())], is_past_end=True) == TriggerState()


def test_clearing_resets_counts_and_targets_and_keeps_done() -> None:
    state = TriggerState(True, 3, END, (TriggerState(True, 1, END), TriggerState(False, 2)))
    assert cleared(state) == TriggerState(True, parts=(TriggerState(True), TriggerState()))


def test_a_deadline_is_due_only_when_time_passes_it() -> None:
    trigger = or_finally(never(), after_processing_time("5s"))
    state = came(trigger, fresh(trigger), 1)
    assert is_due(trigger, state, now(clock=5), now(clock=6))
    assert not is_due(trigger, state, now(clock=4), now(clock=5))
    assert not is_due(trigger, state, now(clock=6), now(clock=7))
    counting = repeatedly(after_count(1))
    assert not is_due(counting, came(counting, fresh(counting), 1), now(), now(99, 99))


DONE = TriggerState(done=True)
SILENT = (TriggerState(), TriggerState())


def test_merged_counts_add_up_and_a_finished_one_finishes_all() -> None:
    assert merged(TWO, [TriggerState(count=1), TriggerState(count=2)], is_past_end=False) == TriggerState(count=3)
    assert merged(TWO, [DONE, TriggerState(count=1)], is_past_end=False) == DONE
    assert merged(when("n > 1"), [TriggerState(), DONE], is_past_end=False) == DONE


def test_a_merged_after_watermark_fires_again_unless_all_had_fired_and_the_new_end_is_passed() -> None:
    output, untold = TriggerState(done=True, parts=SILENT), TriggerState(parts=SILENT)
    for states, is_past_end, done in (
        ([output, output], True, True),
        ([output, output], False, False),
        ([output, untold], True, False),
    ):
        assert merged(after_watermark(), states, is_past_end=is_past_end).done is done


def test_back_in_the_early_phase_late_is_cleared_and_counts_are_those_of_unfired_elements() -> None:
    trigger = after_watermark(early=after_count(3), late=TWO)
    ended = came(trigger, fired(trigger, fresh(trigger), now(10)), 1, merging=True)
    waiting = came(trigger, fresh(trigger), 1, merging=True)
    early, late = merged(trigger, [ended, waiting], is_past_end=False).parts
    assert (early.count, late.count) == (2, 0)
    both = merged(trigger, [ended, ended], is_past_end=True)
    assert both.done
    assert both.parts[1].count == 2


def test_a_late_firing_leaves_nothing_for_an_early_phase_that_may_come_back() -> None:
    trigger = after_watermark(early=TWO, late=after_count(1))
    ended = came(trigger, fired(trigger, fresh(trigger), now(10)), 1, merging=True)
    ended = fired(trigger, ended, now(10, merging=True))
    assert merged(trigger, [ended], is_past_end=False).parts[0].count == 0


def test_merged_targets_are_the_smallest_and_a_new_identity_starts_over() -> None:
    trigger = after_processing_time("5s")
    states = [TriggerState(target=Timestamp(7)), DONE, TriggerState(target=Timestamp(5))]
    assert merged(trigger, states, is_past_end=True) == TriggerState(target=Timestamp(5))
    assert merged(after_event_time("5s"), [DONE], is_past_end=True) == TriggerState()


def test_a_merged_sequence_goes_back_to_the_first_part_that_is_no_longer_finished() -> None:
    trigger = in_sequence(after_count(1), after_watermark(), TWO)
    state = TriggerState(parts=(DONE, TriggerState(done=True, parts=SILENT), TriggerState(count=1)))
    rewound = merged(trigger, [state], is_past_end=False)
    assert rewound == TriggerState(parts=(DONE, TriggerState(parts=SILENT), TriggerState()))
    assert merged(trigger, [state], is_past_end=True) == state


def test_merged_combinations_are_finished_by_their_parts() -> None:
    half = TriggerState(parts=(DONE, TriggerState()))
    either, both = first_of(TWO, after_processing_time("5s")), all_of(TWO, after_processing_time("5s"))
    assert merged(either, [half, fresh(either)], is_past_end=False).done
    assert not merged(both, [half, fresh(both)], is_past_end=False).done
    until = or_finally(TWO, after_count(5))
    joined = merged(until, [came(until, fresh(until), 1), came(until, fresh(until), 1)], is_past_end=False)
    assert [part.count for part in joined.parts] == [2, 2]
    again = repeatedly(TWO)
    assert merged(again, [came(again, fresh(again), 1)] * 2, is_past_end=False).parts[0].count == 2
