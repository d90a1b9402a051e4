"""Assign a batch's elements to windows, and refuse late elements by the watermark before the batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from strandline.model.elements import END, Element, Timestamp
from strandline.model.panes import DeadLetter, DeadReason, Late, LateReason, LateRows
from strandline.model.steps import WindowedStep
from strandline.model.windows import Session, Window
from strandline.reference.state import Arrived, KeyState
from strandline.reference.windows import Assigned, covers, windows_of


@dataclass(slots=True)
class Judged:
    """The outcome for each element of a batch: the windows that take it, or the reason it is refused."""

    becomes: Mapping[Window, Window]
    """For each session, open or new, the session it becomes part of once all that overlap have merged."""
    arrivals: int
    taken: dict[Window, list[Arrived]] = field(default_factory=dict)
    contributed: int = 0
    filtered: int = 0
    refused: list[LateReason] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)


def judge(ask: WindowedStep, state: KeyState, elements: Sequence[Element], watermark: Timestamp) -> Judged:
    """Assign windows, merge sessions, and only then decide which elements are late."""
    arrived = [Arrived(number, element) for number, element in enumerate(elements, state.arrivals)]
    assigned = [windows_of(element, ask.window) for element in elements]
    judged = Judged(_merged_sessions(ask, state, assigned), arrivals=len(elements))
    for one, windows in zip(arrived, assigned, strict=True):
        if isinstance(windows, DeadReason):
            judged.dead.append(dead_letter(one.element, windows))
        elif not windows:
            judged.filtered += 1
        else:
            _place(ask, state, one, [judged.becomes.get(window, window) for window in windows], watermark, judged)
    return judged


def _merged_sessions(ask: WindowedStep, state: KeyState, assigned: Sequence[Assigned]) -> dict[Window, Window]:
    if not isinstance(ask.window, Session):
        return {}
    new = [window for windows in assigned if not isinstance(windows, DeadReason) for window in windows]
    return covers([*state.windows, *new], ask.window.touching)


def _place(
    ask: WindowedStep, state: KeyState, one: Arrived, windows: Sequence[Window], watermark: Timestamp, judged: Judged
) -> None:
    """Put an element into its windows. It is late only if all refuse it; the one that expires last is reported."""
    reasons = {window: refusal(ask, state, window, watermark) for window in windows}
    for window, reason in reasons.items():
        if reason is None:
            judged.taken.setdefault(window, []).append(one)
    refusals = [(window, reason) for window, reason in reasons.items() if reason is not None]
    is_taken = len(refusals) < len(windows)
    if is_taken:
        judged.contributed += 1
    else:
        judged.refused.append(refusals[-1][1])
    if ask.lateness.rows is LateRows.PER_ELEMENT:
        refusals = [] if is_taken else refusals[-1:]
    judged.late += [Late(one.element, reason, window, watermark, is_taken) for window, reason in refusals]


def refusal(ask: WindowedStep, state: KeyState, window: Window, watermark: Timestamp) -> LateReason | None:
    """Return why a window accepts no more elements, or None."""
    if expiry(ask, window) <= watermark:
        return LateReason.EXPIRED
    return LateReason.CLOSED if window in state.closed else None


def expiry(ask: WindowedStep, window: Window) -> Timestamp:
    """Return the gc time: once the watermark reaches it, the window is dropped."""
    return END if ask.lateness.allowed is None else window.max_timestamp + ask.lateness.allowed


def dead_letter(element: Element, reason: DeadReason) -> DeadLetter:
    """Make a dead letter from an element, with whatever could be read of it."""
    at = {} if element.at.is_end else {"at": element.at}
    return DeadLetter(reason, {**at, "key": element.key, **element.columns})
