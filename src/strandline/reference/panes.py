"""Fire a window: decide whether to emit a pane, build it, and retract the pane it replaces."""

from dataclasses import replace
from typing import Any

from strandline.model.elements import Timestamp
from strandline.model.evictors import Moment
from strandline.model.expressions import Expression
from strandline.model.panes import Accumulation, Emit, Pane, Timing
from strandline.model.steps import WindowedStep
from strandline.model.windows import Window
from strandline.reference.aggregates import values_of
from strandline.reference.evictors import kept
from strandline.reference.expressions import evaluate
from strandline.reference.state import Arrived, Open


def fire(
    ask: WindowedStep, key: Any, window: Window, held: Open, timing: Timing, *, is_last: bool
) -> tuple[tuple[Pane, ...], Open]:
    """Return the emitted pane, if any, after the retractions of what it replaces, and the window after the firing."""
    contents = kept(ask.evictor, Moment.BEFORE, held.contents)
    after = replace(held, contents=_remaining(ask, contents), unfired=0, hold=None)
    if not _emits(ask, held, timing, is_last=is_last):
        return (), after
    early = timing is Timing.EARLY
    pane = Pane(
        key=key,
        window=window,
        values=_values(ask, contents),
        timing=timing,
        index=held.panes,
        nonspeculative_index=-1 if early else held.nonspeculative,
        is_first=held.panes == 0,
        is_last=is_last,
        timestamp=window.max_timestamp if held.hold is None else held.hold,
    )
    after = replace(after, panes=held.panes + 1, nonspeculative=held.nonspeculative + (not early), last=pane, owed=())
    return (*_retractions(ask, held), pane), after


def timing_of(window: Window, held: Open, before: Timestamp, after: Timestamp) -> Timing:
    """Return the timing of a firing, by the watermark before and after the batch.

    A firing is late if the window's own output watermark had passed the end before the batch. The batch's elements do
    not change that: they hold it back only where the watermark had not reached the end.
    """
    if held.nonspeculative or window.max_timestamp <= held.output_watermark(before):
        return Timing.LATE
    return Timing.EARLY if after < window.max_timestamp else Timing.ON_TIME


def condition_holds(ask: WindowedStep, held: Open, condition: Expression) -> bool:
    """Return whether a condition is true for the values that a pane would have now."""
    values = _values(ask, kept(ask.evictor, Moment.BEFORE, held.contents))
    last = None if held.last is None else held.last.values
    return evaluate(condition, {"": {**values, "since": held.unfired}, "last": last}) is True


def _emits(ask: WindowedStep, held: Open, timing: Timing, *, is_last: bool) -> bool:
    if held.unfired:
        return True
    on_time = timing is Timing.ON_TIME and ask.on_time_pane is Emit.ALWAYS
    return on_time or (is_last and ask.final_pane is Emit.ALWAYS)


def _retractions(ask: WindowedStep, held: Open) -> tuple[Pane, ...]:
    if ask.accumulation is not Accumulation.RETRACTING:
        return ()
    emitted = held.owed if held.last is None else (*held.owed, held.last)
    return tuple(replace(pane, retraction=True) for pane in emitted)


def _remaining(ask: WindowedStep, contents: tuple[Arrived, ...]) -> tuple[Arrived, ...]:
    """Return what stays in the window after a firing."""
    if ask.accumulation is Accumulation.DISCARDING:
        return ()
    return kept(ask.evictor, Moment.AFTER, contents)


def _values(ask: WindowedStep, contents: tuple[Arrived, ...]) -> dict[str, Any]:
    return values_of(ask.aggregates, (one.element for one in contents))
