"""Assign windows to an element, and merge overlapping sessions."""

from collections.abc import Iterable
from typing import Any, assert_never

from strandline.errors import InvalidTime
from strandline.model.elements import BEGINNING, END, ZERO, Duration, Element, Timestamp, duration, instant
from strandline.model.panes import DeadReason
from strandline.model.windows import (
    EVERYTHING,
    Count,
    Cumulating,
    Custom,
    GapColumn,
    Global,
    Session,
    Sliding,
    Touching,
    Tumbling,
    Window,
    WindowKind,
)

Assigned = tuple[Window, ...] | DeadReason
"""An element's windows in ascending order, none if it falls into a gap; or why it can have none."""


def windows_of(element: Element, kind: WindowKind) -> Assigned:
    """Return an element's windows. A session window is the element's own, before merging."""
    at = element.at
    match kind:
        case Tumbling(size, offset):
            start = boundary(at, size, offset)
            return (_span(start, start + size.ms),)
        case Sliding():
            return _sliding(at, kind)
        case Cumulating(size, step, offset):
            start = boundary(at, size, offset)
            first_end = boundary(at, step, offset) + step.ms
            return tuple(_span(start, end) for end in range(first_end, start + size.ms + 1, step.ms))
        case Session(gap):
            return _session(element, gap)
        case Global():
            return (EVERYTHING,)
        case Custom(start=first, end=last):
            return _custom(element.columns.get(first), element.columns.get(last))
        case Count():
            raise TypeError("count windows are assigned by arrival, not by time")
    assert_never(kind)


def boundary(at: Timestamp, period: Duration, offset: Duration) -> int:
    """Return the last boundary of a period at or before an instant, in milliseconds; it may lie before -inf."""
    return at.ms - (at.ms - offset.ms) % period.ms


def _sliding(at: Timestamp, kind: Sliding) -> tuple[Window, ...]:
    last = boundary(at, kind.every, kind.offset)
    starts = range(last, at.ms - kind.size.ms, -kind.every.ms)
    return tuple(_span(start, start + kind.size.ms) for start in reversed(starts))


def _span(start: int, end: int) -> Window:
    """Return a window; bounds past the ends of time are cut there."""
    return Window(Timestamp(max(start, BEGINNING.ms)), Timestamp(min(end, END.ms)))


def _session(element: Element, gap: Duration | GapColumn) -> Assigned:
    length = _length(element.columns.get(gap.name)) if isinstance(gap, GapColumn) else gap
    if length is None or length <= ZERO:
        return DeadReason.BAD_GAP
    return (Window(element.at, element.at + length),)


def _length(given: Any) -> Duration | None:
    """Parse a gap column: whole milliseconds, or a duration text."""
    if isinstance(given, int) and not isinstance(given, bool):
        return Duration(given)
    try:
        return duration(given)
    except InvalidTime:
        return None


def _custom(start: Any, end: Any) -> Assigned:
    try:
        window = Window(instant(start), instant(end))
    except InvalidTime:
        return DeadReason.BAD_WINDOW
    if window.start.is_end or window.end.is_end or window.end <= window.start:
        return DeadReason.BAD_WINDOW
    return (window,)


def covers(sessions: Iterable[Window], touching: Touching) -> dict[Window, Window]:
    """Map each session to the session it becomes once all that overlap have merged."""
    found: dict[Window, Window] = {}
    group: list[Window] = []
    end = BEGINNING
    for window in sorted(set(sessions)):
        meets = window.start < end or (window.start == end and touching is Touching.MERGE)
        if group and not meets:
            found.update(dict.fromkeys(group, Window(group[0].start, end)))
            group, end = [], BEGINNING
        group.append(window)
        end = max(end, window.end)
    found.update(dict.fromkeys(group, Window(group[0].start, end)) if group else {})
    return found
