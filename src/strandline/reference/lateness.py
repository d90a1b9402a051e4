"""Who is taken and who is too late: a batch's elements find their windows and are judged by the old watermark."""

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
    """A batch's elements told apart: what each window takes, and what none could take, with the reason."""

    becomes: Mapping[Window, Window]
    """Of each session, open or new, the one it is part of once all that meet have merged."""
    arrivals: int
    taken: dict[Window, list[Arrived]] = field(default_factory=dict)
    contributed: int = 0
    filtered: int = 0
    refused: list[LateReason] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)


def judge(ask: WindowedStep, state: KeyState, elements: Sequence[Element], watermark: Timestamp) -> Judged:
    """Elements find their windows, sessions meet, and only then is it asked who comes too late."""
    arrived = [Arrived(number, element) for number, element in enumerate(elements, state.arrivals)]
    assigned = [windows_of(element, ask.window) for element in elements]
    judged = Judged(_meet(ask, state, assigned), arrivals=len(elements))
    for one, windows in zip(arrived, assigned, strict=True):
        if isinstance(windows, DeadReason):
            judged.dead.append(dead_letter(one.element, windows))
        elif not windows:
            judged.filtered += 1
        else:
            _place(ask, state, one, [judged.becomes.get(window, window) for window in windows], watermark, judged)
    return judged


def _meet(ask: WindowedStep, state: KeyState, assigned: Sequence[Assigned]) -> dict[Window, Window]:
    if not isinstance(ask.window, Session):
        return {}
    new = [window for windows in assigned if not isinstance(windows, DeadReason) for window in windows]
    return covers([*state.windows, *new], ask.window.touching)


def _place(
    ask: WindowedStep, state: KeyState, one: Arrived, windows: Sequence[Window], watermark: Timestamp, judged: Judged
) -> None:
    """An element is late only if all its windows refuse it; the last of them, which lives longest, is then named."""
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
    """Why a window takes no more elements, if it does not."""
    if expiry(ask, window) <= watermark:
        return LateReason.EXPIRED
    return LateReason.CLOSED if window in state.closed else None


def expiry(ask: WindowedStep, window: Window) -> Timestamp:
    """The gc time: once the watermark is here, the window is gone."""
    return END if ask.lateness.allowed is None else window.max_timestamp + ask.lateness.allowed


def dead_letter(element: Element, reason: DeadReason) -> DeadLetter:
    """An element that cannot be taken in, with whatever could be read of it."""
    at = {} if element.at.is_end else {"at": element.at}
    return DeadLetter(reason, {**at, "key": element.key, **element.columns})
