"""Process one batch of one key: assign, merge sessions, add, fire each window once, expire. The order matters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from strandline.model.elements import Element, Timestamp
from strandline.model.panes import Pane, PaneTimestamp, Row
from strandline.model.steps import WindowedStep
from strandline.model.windows import Session, Window
from strandline.reference.counts import CountState
from strandline.reference.deduplicate import DeduplicateState
from strandline.reference.interval_join import JoinState
from strandline.reference.lateness import Judged, expiry, judge
from strandline.reference.panes import condition_holds, fire, timing_of
from strandline.reference.state import KeyState, Open, combined, merged_session
from strandline.reference.table_join import TableJoinState
from strandline.reference.temporal_join import TemporalState
from strandline.reference.triggers import Arrivals, Now, fresh, is_due, is_finished, on_elements, on_fire, should_fire


@dataclass(frozen=True, slots=True)
class Passage:
    """The watermark and the clock, before and after a batch."""

    watermark_before: Timestamp
    watermark: Timestamp
    clock_before: Timestamp
    clock: Timestamp

    @property
    def stands_still(self) -> bool:
        return self.watermark == self.watermark_before and self.clock == self.clock_before


@dataclass(frozen=True, slots=True)
class Stepped:
    """A key's state after a batch, the emitted panes, and the outcome of each element."""

    state: KeyState | CountState | DeduplicateState | JoinState | TableJoinState | TemporalState
    panes: tuple[Pane, ...]
    judged: Judged
    rows: tuple[Row, ...] = ()


def step(ask: WindowedStep, key: Any, state: KeyState, elements: Sequence[Element], time: Passage) -> Stepped:
    """Process one batch of one key, with its elements in order of arrival."""
    judged = judge(ask, state, elements, time.watermark_before)
    state = merge_sessions(ask, state, judged, time)
    state = add(ask, state, judged, time)
    state, panes = fire_windows(ask, key, state, judged, time)
    return Stepped(expire_windows(ask, state, time), panes, judged)


def merge_sessions(ask: WindowedStep, state: KeyState, judged: Judged, time: Passage) -> KeyState:
    """Merge the open sessions that an accepted element joins or extends, under the new bounds."""
    if not judged.becomes:
        return state
    windows = dict(state.windows)
    for session in judged.taken:
        parts = [window for window in state.windows if judged.becomes[window] == session]
        if parts not in ([], [session]):
            merged = [windows.pop(part) for part in parts]
            windows[session] = merged_session(ask, session, merged, time.watermark_before)
    return replace(state, windows=windows)


def add(ask: WindowedStep, state: KeyState, judged: Judged, time: Passage) -> KeyState:
    """Add the accepted elements to windows and triggers, all at once, with the batch's clock as their arrival."""
    if not judged.taken:
        return state
    windows = dict(state.windows)
    for window, arrived in judged.taken.items():
        held = windows.get(window) or Open(fresh(ask.trigger))
        batch = Arrivals([one.element.at for one in arrived], time.clock)
        windows[window] = replace(
            held,
            trigger=on_elements(ask.trigger, held.trigger, batch, window.max_timestamp, merging=_merges(ask)),
            contents=(*held.contents, *arrived),
            unfired=held.unfired + len(arrived),
            hold=_hold(ask, window, held, batch.times, time.watermark_before),
            arrived=time.clock,
        )
    return KeyState(windows, state.closed, state.arrivals + judged.arrivals)


def _merges(ask: WindowedStep) -> bool:
    return isinstance(ask.window, Session)


def _hold(
    ask: WindowedStep, window: Window, held: Open, times: Sequence[Timestamp], watermark: Timestamp
) -> Timestamp | None:
    """New elements hold the output watermark back too, but not below where it already is."""
    end, reached = window.max_timestamp, held.output_watermark(watermark)
    at_end = ask.pane_timestamp is PaneTimestamp.END_OF_WINDOW
    assigned = [end if at_end else at for at in times]
    counted = [at for at in assigned if at > reached and watermark < end]
    return combined(ask, window, counted if held.hold is None else [held.hold, *counted])


def fire_windows(
    ask: WindowedStep, key: Any, state: KeyState, judged: Judged, time: Passage
) -> tuple[KeyState, tuple[Pane, ...]]:
    """Test once each window that took an element or has a deadline due; an expired window fires without a test."""
    windows, closed, emitted = dict(state.windows), dict(state.closed), list[Pane]()
    for window in sorted(state.windows):
        held = state.windows[window]
        is_last = is_over(ask, window, held.arrived, time)
        if not is_last:
            now = _now(ask, window, held, time)
            if not (window in judged.taken or _is_due(ask, held, now, time)):
                continue
            if not should_fire(ask.trigger, held.trigger, now):
                continue
            held = replace(held, trigger=on_fire(ask.trigger, held.trigger, now))
            is_last = is_finished(ask.trigger, held.trigger)
        timing = timing_of(window, held, time.watermark_before, time.watermark)
        panes, windows[window] = fire(ask, key, window, held, timing, is_last=is_last)
        emitted += panes
        if is_last:
            closed[window] = windows.pop(window).arrived
    return KeyState(windows, closed, state.arrivals), tuple(emitted)


def _now(ask: WindowedStep, window: Window, held: Open, time: Passage) -> Now:
    """Return what the window's trigger sees at its test."""
    return Now(
        window.max_timestamp,
        time.watermark,
        time.clock,
        lambda condition: condition_holds(ask, held, condition),
        _merges(ask),
    )


def _is_due(ask: WindowedStep, held: Open, now: Now, time: Passage) -> bool:
    """A deadline is due in the batch in which time passes it: the window's end, or a target of its trigger."""
    if time.stands_still:
        return False
    was = replace(now, watermark=time.watermark_before, clock=time.clock_before)
    return (now.is_past_end and not was.is_past_end) or is_due(ask.trigger, held.trigger, was, now)


def is_over(ask: WindowedStep, window: Window, arrived: Timestamp, time: Passage) -> bool:
    """Return whether the watermark has reached the gc time, or the last element is older than the time to live."""
    return time.watermark >= expiry(ask, window) or (ask.ttl is not None and time.clock > arrived + ask.ttl)


def expire_windows(ask: WindowedStep, state: KeyState, time: Passage) -> KeyState:
    """Drop expired windows, and the marks of expired closed windows."""
    if time.stands_still:
        return state
    windows = {window: held for window, held in state.windows.items() if not is_over(ask, window, held.arrived, time)}
    closed = {window: arrived for window, arrived in state.closed.items() if not is_over(ask, window, arrived, time)}
    return KeyState(windows, closed, state.arrivals)
