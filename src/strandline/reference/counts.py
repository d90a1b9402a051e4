"""Process count windows: exact by order of arrival, whatever the batches; without lateness and triggers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strandline.model.elements import END, Element, Timestamp
from strandline.model.panes import Pane, PaneTimestamp, Timing
from strandline.model.steps import WindowedStep
from strandline.model.windows import Count, Window
from strandline.reference.aggregates import values_of


@dataclass(frozen=True, slots=True)
class CountState:
    """The number of elements of a key, the newest ones that a pane may still hold, and how many are not yet emitted."""

    seen: int = 0
    recent: tuple[Element, ...] = ()
    unemitted: int = 0

    @property
    def is_empty(self) -> bool:
        return self.seen == 0


def count(
    ask: WindowedStep, kind: Count, key: Any, state: CountState, elements: Sequence[Element], watermark: Timestamp
) -> tuple[CountState, tuple[Pane, ...]]:
    """Process one batch of one key: a pane for each full window, and at the end of input one for the rest."""
    panes = []
    for element in elements:
        state = _added(kind, state, element)
        if state.seen % (kind.every or kind.size) == 0:
            panes.append(_pane(ask, kind, key, state))
            state = _after_pane(kind, state)
    if watermark == END and state.unemitted:
        panes.append(_pane(ask, kind, key, state))
    return CountState() if watermark == END else state, tuple(panes)


def _added(kind: Count, state: CountState, element: Element) -> CountState:
    return CountState(state.seen + 1, (*state.recent, element)[-kind.size :], state.unemitted + 1)


def _after_pane(kind: Count, state: CountState) -> CountState:
    """Without a slide a full window is dropped; with a slide its elements may be emitted again."""
    return CountState(state.seen, state.recent if kind.every else (), 0)


def _pane(ask: WindowedStep, kind: Count, key: Any, state: CountState) -> Pane:
    times = [element.at for element in state.recent]
    earliest = ask.pane_timestamp is PaneTimestamp.EARLIEST
    return Pane(
        key=key,
        window=_span(kind, state),
        values=values_of(ask.aggregates, state.recent),
        timing=Timing.ON_TIME,
        index=0,
        nonspeculative_index=0,
        is_first=True,
        is_last=True,
        timestamp=min(times) if earliest else max(times),
    )


def _span(kind: Count, state: CountState) -> Window:
    """The bounds count elements: the whole window without a slide, exactly the pane's elements with one."""
    start = max(state.seen - kind.size, 0) if kind.every else (state.seen - 1) // kind.size * kind.size
    return Window(Timestamp(start), Timestamp(state.seen if kind.every else start + kind.size))
