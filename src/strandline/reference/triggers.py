"""A trigger as a fold over what happened to a window: elements came, time passed, it fired, windows merged.

Each node of the tree keeps the same few things, and the seven questions below are answered by matching the node. A
deadline is due in the batch in which time passes it, and in no other: what fires again and again does so on elements.
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
    """What one node has seen: elements, a target in its own time, whether it is done, and its parts' own states.

    Done is the finished bit. Of after_watermark it says that the end was told; with a late part that is not finished.
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
    """What a trigger may look at: the window's max timestamp, the watermark, the clock, and the pane it would give."""

    end: Timestamp
    watermark: Timestamp
    clock: Timestamp
    holds: Callable[[Expression], bool]
    merging: bool
    """Whether windows of this kind can merge: then every part is kept ready to be revived."""

    @property
    def is_past_end(self) -> bool:
        return self.watermark >= self.end


_SILENT: Final = Never()


def parts(trigger: Trigger) -> tuple[Trigger, ...]:
    """The parts that have a state: early and late always stand in their places."""
    if isinstance(trigger, AfterWatermark):
        return (trigger.early or _SILENT, trigger.late or _SILENT)
    return parts_of(trigger)


def fresh(trigger: Trigger) -> TriggerState:
    """A trigger that has seen nothing."""
    return TriggerState(parts=tuple(fresh(part) for part in parts(trigger)))


def cleared(state: TriggerState) -> TriggerState:
    """Counts and targets forgotten in the whole tree; what is done stays done."""
    return TriggerState(state.done, parts=tuple(cleared(part) for part in state.parts))


def is_finished(trigger: Trigger, state: TriggerState) -> bool:
    """Whether it will not fire again."""
    match trigger:
        case Never() | Repeatedly():
            return False
        case AfterWatermark(late=late):
            return state.done and late is None
        case InSequence():
            return all(is_finished(part, kept) for part, kept in _pairs(trigger, state))
        case OrFinally():
            return any(is_finished(part, kept) for part, kept in _pairs(trigger, state))
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When() | FirstOf() | AllOf():
            return state.done
    assert_never(trigger)


def on_elements(
    trigger: Trigger, state: TriggerState, came: Arrivals, end: Timestamp, *, merging: bool
) -> TriggerState:
    """The state once a window has taken elements."""
    match trigger:
        case AfterCount():
            return replace(state, count=state.count + len(came.times))
        case AfterProcessingTime():
            return state if state.target is not None else replace(state, target=_aligned(trigger, came.clock))
        case AfterEventTime(period, offset):
            earliest = min(came.times)
            following = earliest + Duration(boundary(earliest, period, offset) + period.ms - earliest.ms)
            return replace(state, target=min(following, end, state.target or end))
        case When() | Never():
            return state
        case AfterWatermark() | AllOf() | InSequence() | FirstOf() | OrFinally() | Repeatedly():
            reached = _reached(trigger, state, merging=merging)
            return replace(
                state,
                parts=tuple(
                    on_elements(part, kept, came, end, merging=merging) if place in reached else kept
                    for place, (part, kept) in enumerate(_pairs(trigger, state))
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
    """The places of the parts that elements reach."""
    everywhere = range(len(state.parts))
    match trigger:
        case AllOf():
            return [i for i, (part, kept) in enumerate(_pairs(trigger, state)) if not is_finished(part, kept)]
        case AfterWatermark() if not merging:
            return (1,) if state.done else (0,)
        case InSequence() if not merging:
            return [_current(trigger, state)]
        case _:
            return everywhere


def should_fire(trigger: Trigger, state: TriggerState, now: Now) -> bool:
    """Whether it would fire now."""
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
            return any(is_finished(part, kept) or should_fire(part, kept, now) for part, kept in _pairs(trigger, state))
        case AllOf():
            return all(is_finished(part, kept) or should_fire(part, kept, now) for part, kept in _pairs(trigger, state))
        case InSequence():
            return _should(trigger, state, _current(trigger, state), now)
        case OrFinally():
            return _should(trigger, state, 0, now) or _should(trigger, state, 1, now)
    assert_never(trigger)


def _should(trigger: Trigger, state: TriggerState, place: int, now: Now) -> bool:
    return should_fire(parts(trigger)[place], state.parts[place], now)


def on_fire(trigger: Trigger, state: TriggerState, now: Now) -> TriggerState:
    """The state once a pane was taken."""
    match trigger:
        case AfterWatermark():
            return _end_told(trigger, state, now)
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When():
            return TriggerState(done=True)
        case Never():
            return state
        case Repeatedly(of):
            return TriggerState(parts=(_renewed(of, on_fire(of, state.parts[0], now)),))
        case FirstOf():
            fired = tuple(
                on_fire(part, kept, now) if should_fire(part, kept, now) else cleared(kept)
                for part, kept in _pairs(trigger, state)
            )
            return TriggerState(done=True, parts=fired)
        case AllOf():
            return TriggerState(True, parts=tuple(on_fire(part, kept, now) for part, kept in _pairs(trigger, state)))
        case InSequence():
            after = _fired(trigger, state, _current(trigger, state), now)
            return cleared(after) if now.merging else after
        case OrFinally():
            if not _should(trigger, state, 1, now):
                return _fired(trigger, state, 0, now)
            main, until = _fired(trigger, state, 1, now).parts
            return TriggerState(parts=(cleared(main), until))
    assert_never(trigger)


def _end_told(trigger: AfterWatermark, state: TriggerState, now: Now) -> TriggerState:
    """Before the end early fires, after it late, and both start over; whichever fires, the other's pane is gone too."""
    early, late = parts(trigger)
    if now.is_past_end and not state.done:
        return TriggerState(done=True, parts=(fresh(early), fresh(late)))
    speaks, place = (late, 1) if state.done else (early, 0)
    after = cleared(_fired(trigger, state, place, now))
    renewed = _renewed(speaks, after.parts[place])
    return replace(after, parts=(after.parts[0], renewed) if state.done else (renewed, after.parts[1]))


def _fired(trigger: Trigger, state: TriggerState, place: int, now: Now) -> TriggerState:
    """The state once one part has fired."""
    fired = on_fire(parts(trigger)[place], state.parts[place], now)
    return replace(state, parts=(*state.parts[:place], fired, *state.parts[place + 1 :]))


def _renewed(trigger: Trigger, state: TriggerState) -> TriggerState:
    return fresh(trigger) if is_finished(trigger, state) else state


def _current(trigger: InSequence, state: TriggerState) -> int:
    """The first part of a sequence that is not finished; the last one once all are."""
    unfinished = (i for i, (part, kept) in enumerate(_pairs(trigger, state)) if not is_finished(part, kept))
    return next(unfinished, len(state.parts) - 1)


def merged(trigger: Trigger, states: Sequence[TriggerState], *, is_past_end: bool) -> TriggerState:
    """The state of a session that several became, or one grew into; `is_past_end` asks about the new end.

    The result has other bounds than any of them, so nothing can be finished because it survived: what has a target of
    its own time starts over with the smallest one.
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
            over = [is_finished(part, kept) for part, kept in _pairs(trigger, together)]
            return replace(together, done=any(over) if isinstance(trigger, FirstOf) else all(over))
        case InSequence(of):
            together = TriggerState(parts=tuple(_merged_parts(trigger, states, is_past_end=is_past_end)))
            current = _current(trigger, together)
            return TriggerState(parts=(*together.parts[: current + 1], *(fresh(part) for part in of[current + 1 :])))
    assert_never(trigger)


def _merged_end(trigger: AfterWatermark, states: Sequence[TriggerState], *, is_past_end: bool) -> TriggerState:
    """Back to the early phase, unless all had left it and the new end is passed too."""
    done = is_past_end and all(state.done for state in states)
    early, late = _merged_parts(trigger, states, is_past_end=is_past_end)
    return TriggerState(done, parts=(early, late if done else fresh(trigger.late or _SILENT)))


def _merged_parts(trigger: Trigger, states: Sequence[TriggerState], *, is_past_end: bool) -> Iterator[TriggerState]:
    for place, part in enumerate(parts(trigger)):
        yield merged(part, [state.parts[place] for state in states], is_past_end=is_past_end)


def is_due(trigger: Trigger, state: TriggerState, was: Now, now: Now) -> bool:
    """Whether time has just passed a target somewhere in the tree: it could not fire before this batch, now it can."""
    timed = isinstance(trigger, AfterProcessingTime | AfterEventTime)
    if timed and should_fire(trigger, state, now) and not should_fire(trigger, state, was):
        return True
    return bool(state.parts) and any(is_due(part, kept, was, now) for part, kept in _pairs(trigger, state))


def _pairs(trigger: Trigger, state: TriggerState) -> list[tuple[Trigger, TriggerState]]:
    return list(zip(parts(trigger), state.parts, strict=True))
