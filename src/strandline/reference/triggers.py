"""Run triggers as a fold over a window's events: elements arrived, time passed, a pane fired, windows merged.

Each node of the tree has the same few fields, and each of the seven functions below matches on the node. A deadline is
due only in the batch in which time passes it: a repeated trigger fires again only on elements.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from strandline.model.elements import Duration, Timestamp
from strandline.model.expressions import Expression
from strandline.model.triggers import (
    AfterCount,
    AfterEventTime,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    FirstOf,
    InSequence,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    When,
    parts_of,
)
from strandline.reference.windows import boundary


@dataclass(frozen=True, slots=True)
class TriggerState:
    """The state of one node: a count of elements, a target in its own time, whether it is done, and its parts' states.

    `done` is the finished bit. For after_watermark it means that the on-time pane fired; with a late part that is not
    finished.
    """

    done: bool = False
    count: int = 0
    target: Timestamp | None = None
    parts: tuple["TriggerState", ...] = ()


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The elements a window takes in one batch: their times, and the clock at which all of them arrived."""

    times: Sequence[Timestamp]
    clock: Timestamp


@dataclass(frozen=True, slots=True)
class Now:
    """The inputs of a trigger: the window's max timestamp, the watermark, the clock, and conditions on its pane."""

    end: Timestamp
    watermark: Timestamp
    clock: Timestamp
    holds: Callable[[Expression], bool]
    merging: bool
    """Whether windows of this kind can merge: then every part keeps its state, ready to be revived."""

    @property
    def is_past_end(self) -> bool:
        return self.watermark >= self.end


_NEVER: Final = Never()


def parts(trigger: Trigger) -> tuple[Trigger, ...]:
    """Return the parts that have a state; early and late always have a place."""
    if isinstance(trigger, AfterWatermark):
        return (trigger.early or _NEVER, trigger.late or _NEVER)
    return parts_of(trigger)


def fresh(trigger: Trigger) -> TriggerState:
    """Return the state of a trigger that has seen nothing."""
    return TriggerState(parts=tuple(fresh(part) for part in parts(trigger)))


def cleared(state: TriggerState) -> TriggerState:
    """Reset counts and targets in the whole tree; `done` stays."""
    return TriggerState(state.done, parts=tuple(cleared(part) for part in state.parts))


def is_finished(trigger: Trigger, state: TriggerState) -> bool:
    """Return whether the trigger will not fire again."""
    match trigger:
        case Never() | Repeatedly():
            return False
        case AfterWatermark(late=late):
            return state.done and late is None
        case InSequence():
            return all(is_finished(part, part_state) for part, part_state in _pairs(trigger, state))
        case OrFinally():
            return any(is_finished(part, part_state) for part, part_state in _pairs(trigger, state))
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When() | FirstOf() | AllOf():
            return state.done
    assert_never(trigger)


def on_elements(
    trigger: Trigger, state: TriggerState, batch: Arrivals, end: Timestamp, *, merging: bool
) -> TriggerState:
    """Return the state after a window has taken elements."""
    match trigger:
        case AfterCount():
            return replace(state, count=state.count + len(batch.times))
        case AfterProcessingTime():
            return state if state.target is not None else replace(state, target=_aligned(trigger, batch.clock))
        case AfterEventTime(period, offset):
            earliest = min(batch.times)
            following = earliest + Duration(boundary(earliest, period, offset) + period.ms - earliest.ms)
            return replace(state, target=min(following, end, state.target or end))
        case When() | Never():
            return state
        case AfterWatermark() | AllOf() | InSequence() | FirstOf() | OrFinally() | Repeatedly():
            reached = _reached(trigger, state, merging=merging)
            return replace(
                state,
                parts=tuple(
                    on_elements(part, part_state, batch, end, merging=merging) if place in reached else part_state
                    for place, (part, part_state) in enumerate(_pairs(trigger, state))
                ),
            )
    assert_never(trigger)


def _aligned(trigger: AfterProcessingTime, arrival: Timestamp) -> Timestamp:
    target = arrival + trigger.delay
    if trigger.aligned is None:
        return target
    below = boundary(target, trigger.aligned, trigger.offset)
    return target if below == target.ms else target + Duration(below + trigger.aligned.ms - target.ms)


def _reached(trigger: Trigger, state: TriggerState, *, merging: bool) -> Sequence[int]:
    """Return the indexes of the parts that elements reach."""
    everywhere = range(len(state.parts))
    match trigger:
        case AllOf():
            return [
                i for i, (part, part_state) in enumerate(_pairs(trigger, state)) if not is_finished(part, part_state)
            ]
        case AfterWatermark() if not merging:
            return (1,) if state.done else (0,)
        case InSequence() if not merging:
            return [_current(trigger, state)]
        case _:
            return everywhere


def should_fire(trigger: Trigger, state: TriggerState, now: Now) -> bool:
    """Return whether the trigger fires now."""
    match trigger:
        case AfterWatermark() if not state.done:
            return now.is_past_end or _should(trigger, state, 0, now)
        case AfterWatermark():
            return _should(trigger, state, 1, now)
        case AfterCount(n):
            return state.count >= n
        case AfterProcessingTime():
            return state.target is not None and now.clock > state.target
        case AfterEventTime():
            return state.target is not None and now.watermark >= state.target
        case When(condition):
            return now.holds(condition)
        case Never():
            return False
        case Repeatedly():
            return _should(trigger, state, 0, now)
        case FirstOf():
            return any(
                is_finished(part, part_state) or should_fire(part, part_state, now)
                for part, part_state in _pairs(trigger, state)
            )
        case AllOf():
            return all(
                is_finished(part, part_state) or should_fire(part, part_state, now)
                for part, part_state in _pairs(trigger, state)
            )
        case InSequence():
            return _should(trigger, state, _current(trigger, state), now)
        case OrFinally():
            return _should(trigger, state, 0, now) or _should(trigger, state, 1, now)
    assert_never(trigger)


def _should(trigger: Trigger, state: TriggerState, place: int, now: Now) -> bool:
    return should_fire(parts(trigger)[place], state.parts[place], now)


def on_fire(trigger: Trigger, state: TriggerState, now: Now) -> TriggerState:
    """Return the state after a firing."""
    match trigger:
        case AfterWatermark():
            return _after_watermark_fired(trigger, state, now)
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When():
            return TriggerState(done=True)
        case Never():
            return state
        case Repeatedly(of):
            return TriggerState(parts=(_renewed(of, on_fire(of, state.parts[0], now)),))
        case FirstOf():
            fired = tuple(
                on_fire(part, part_state, now) if should_fire(part, part_state, now) else cleared(part_state)
                for part, part_state in _pairs(trigger, state)
            )
            return TriggerState(done=True, parts=fired)
        case AllOf():
            return TriggerState(
                True, parts=tuple(on_fire(part, part_state, now) for part, part_state in _pairs(trigger, state))
            )
        case InSequence():
            after = _fired(trigger, state, _current(trigger, state), now)
            return cleared(after) if now.merging else after
        case OrFinally():
            if not _should(trigger, state, 1, now):
                return _fired(trigger, state, 0, now)
            main, until = _fired(trigger, state, 1, now).parts
            return TriggerState(parts=(cleared(main), until))
    assert_never(trigger)


def _after_watermark_fired(trigger: AfterWatermark, state: TriggerState, now: Now) -> TriggerState:
    """Before the end `early` fires, after it `late`; the firing part starts over, and the other part is cleared."""
    early, late = parts(trigger)
    if now.is_past_end and not state.done:
        return TriggerState(done=True, parts=(fresh(early), fresh(late)))
    firing, place = (late, 1) if state.done else (early, 0)
    after = cleared(_fired(trigger, state, place, now))
    renewed = _renewed(firing, after.parts[place])
    return replace(after, parts=(after.parts[0], renewed) if state.done else (renewed, after.parts[1]))


def _fired(trigger: Trigger, state: TriggerState, place: int, now: Now) -> TriggerState:
    """Return the state after one part has fired."""
    fired = on_fire(parts(trigger)[place], state.parts[place], now)
    return replace(state, parts=(*state.parts[:place], fired, *state.parts[place + 1 :]))


def _renewed(trigger: Trigger, state: TriggerState) -> TriggerState:
    return fresh(trigger) if is_finished(trigger, state) else state


def _current(trigger: InSequence, state: TriggerState) -> int:
    """Return the first part of a sequence that is not finished; the last one once all are."""
    unfinished = (i for i, (part, part_state) in enumerate(_pairs(trigger, state)) if not is_finished(part, part_state))
    return next(unfinished, len(state.parts) - 1)


def merged(trigger: Trigger, states: Sequence[TriggerState], *, is_past_end: bool) -> TriggerState:
    """Return the state of a merged or extended session; `is_past_end` refers to the new end.

    The result has other bounds than any of the merged sessions, so no part stays finished by survival: parts with a
    target in their own time start over with the smallest target.
    """
    match trigger:
        case AfterWatermark():
            return _merged_end(trigger, states, is_past_end=is_past_end)
        case AfterCount():
            done = any(state.done for state in states)
            return TriggerState(done, count=0 if done else sum(state.count for state in states))
        case AfterProcessingTime() | AfterEventTime():
            return TriggerState(target=min((state.target for state in states if state.target), default=None))
        case When():
            return TriggerState(any(state.done for state in states))
        case Never():
            return TriggerState()
        case Repeatedly() | OrFinally():
            return TriggerState(parts=tuple(_merged_parts(trigger, states, is_past_end=is_past_end)))
        case FirstOf() | AllOf():
            together = TriggerState(parts=tuple(_merged_parts(trigger, states, is_past_end=is_past_end)))
            over = [is_finished(part, part_state) for part, part_state in _pairs(trigger, together)]
            return replace(together, done=any(over) if isinstance(trigger, FirstOf) else all(over))
        case InSequence(of):
            together = TriggerState(parts=tuple(_merged_parts(trigger, states, is_past_end=is_past_end)))
            current = _current(trigger, together)
            return TriggerState(parts=(*together.parts[: current + 1], *(fresh(part) for part in of[current + 1 :])))
    assert_never(trigger)


def _merged_end(trigger: AfterWatermark, states: Sequence[TriggerState], *, is_past_end: bool) -> TriggerState:
    """Return to the early phase, unless all had left it and the new end is passed too."""
    done = is_past_end and all(state.done for state in states)
    early, late = _merged_parts(trigger, states, is_past_end=is_past_end)
    return TriggerState(done, parts=(early, late if done else fresh(trigger.late or _NEVER)))


def _merged_parts(trigger: Trigger, states: Sequence[TriggerState], *, is_past_end: bool) -> Iterator[TriggerState]:
    for place, part in enumerate(parts(trigger)):
        yield merged(part, [state.parts[place] for state in states], is_past_end=is_past_end)


def is_due(trigger: Trigger, state: TriggerState, was: Now, now: Now) -> bool:
    """Return whether time has just passed a target in the tree: it could not fire before this batch, now it can."""
    timed = isinstance(trigger, AfterProcessingTime | AfterEventTime)
    if timed and should_fire(trigger, state, now) and not should_fire(trigger, state, was):
        return True
    return bool(state.parts) and any(is_due(part, part_state, was, now) for part, part_state in _pairs(trigger, state))


def _pairs(trigger: Trigger, state: TriggerState) -> list[tuple[Trigger, TriggerState]]:
    return list(zip(parts(trigger), state.parts, strict=True))
