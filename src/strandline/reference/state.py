"""Define the state of one key: its open windows, and marks of windows that their trigger has closed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from strandline.model.elements import EPOCH, INSTANT, Element, Timestamp
from strandline.model.panes import Accumulation, Pane, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.windows import Window
from strandline.reference.triggers import TriggerState, merged


@dataclass(frozen=True, slots=True)
class Arrived:
    """An element that a window has accepted, numbered by arrival within its key."""

    number: int
    element: Element


@dataclass(frozen=True, slots=True)
class Open:
    """An open window: its contents in order of arrival, its trigger state, and its emitted panes."""

    trigger: TriggerState
    contents: tuple[Arrived, ...] = ()
    unfired: int = 0
    """Elements added since the last firing; a pane without any is empty."""
    hold: Timestamp | None = None
    """The combined time of the counted, unfired elements: the step's output watermark stays below it."""
    arrived: Timestamp = EPOCH
    """The clock at the arrival of the last element."""
    panes: int = 0
    nonspeculative: int = 0
    last: Pane | None = None
    owed: tuple[Pane, ...] = ()
    """Last panes of sessions merged into this one, by window, to be retracted when this window first fires."""

    def output_watermark(self, watermark: Timestamp) -> Timestamp:
        """Return how far this window alone lets the output watermark advance."""
        return watermark if self.hold is None else min(watermark, self.hold - INSTANT)


@dataclass(frozen=True, slots=True)
class KeyState:
    """All state of a key; a closed window's mark holds the arrival of its last element."""

    windows: Mapping[Window, Open] = field(default_factory=dict)
    closed: Mapping[Window, Timestamp] = field(default_factory=dict)
    arrivals: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.windows and not self.closed


def combined(ask: WindowedStep, window: Window, times: Sequence[Timestamp]) -> Timestamp | None:
    """Combine times into one: it holds the output watermark back, and is the timestamp of a pane."""
    if not times:
        return None
    match ask.pane_timestamp:
        case PaneTimestamp.END_OF_WINDOW:
            return window.max_timestamp
        case PaneTimestamp.EARLIEST:
            return min(times)
        case PaneTimestamp.LATEST:
            return max(times)
    assert_never(ask.pane_timestamp)


def merged_session(ask: WindowedStep, session: Window, before: Sequence[Open], watermark: Timestamp) -> Open:
    """Merge sessions: the result holds all of their contents, under a new identity that has not fired yet.

    It exists because an element joined them; that element is added next and sets the arrival time.
    """
    emitted = [pane for each in before for pane in (*each.owed, each.last) if pane is not None]
    return Open(
        trigger=merged(ask.trigger, [each.trigger for each in before], is_past_end=watermark >= session.max_timestamp),
        contents=tuple(sorted((one for each in before for one in each.contents), key=lambda one: one.number)),
        unfired=sum(each.unfired for each in before),
        hold=combined(ask, session, [each.hold for each in before if each.hold is not None]),
        owed=(
            tuple(sorted(emitted, key=lambda pane: pane.window)) if ask.accumulation is Accumulation.RETRACTING else ()
        ),
    )
