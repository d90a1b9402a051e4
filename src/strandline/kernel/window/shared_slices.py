"""Divide event time into shared slices: intervals without a window bound inside, which overlapping windows share.

All elements of a shared slice belong to the same windows. Where windows overlap and emit nothing before their end,
elements are aggregated once, by shared slice; the contents of a window are combined when the watermark passes its end.
A shared slice is identified by its first instant, which is a valid timestamp even if its windows reach beyond the
limits.

Stored names still say "strips" for shared slices. Several shared slices form one slice of the state store.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import gcd
from typing import Final

import polars as pl

from strandline.kernel.blocks.block import AT
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.kernel.window.assign import later, max_timestamp, since_boundary
from strandline.model.elements import Duration
from strandline.model.panes import PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import AfterWatermark, Never, Repeatedly
from strandline.model.windows import Cumulating, Sliding, Tumbling

Overlapping = Sliding | Cumulating

SLICES: Final = 16
"""Approximate number of state slices that hold the shared slices of one window."""


@cache
def has_no_early_panes(step: WindowedStep) -> bool:
    """Tell whether windows emit nothing before the watermark passes their end."""
    trigger = step.trigger.of if isinstance(step.trigger, Repeatedly) else step.trigger
    return isinstance(trigger, Never) or (isinstance(trigger, AfterWatermark) and trigger.early is None)


@cache
def uses_shared_slices(step: WindowedStep) -> bool:
    """Tell whether windows use shared slices: they overlap, and before their end their only state is their contents."""
    has_contents_only = step.pane_timestamp is PaneTimestamp.END_OF_WINDOW and step.evictor is None
    return has_no_early_panes(step) and has_contents_only and _overlap(step)


def _overlap(step: WindowedStep) -> bool:
    match step.window:
        case Sliding(size, every, _) | Cumulating(size, every, _):
            return size > every
    return False


@cache
def step_over_slices(step: WindowedStep) -> WindowedStep:
    """Return the step over shared slices: the longest tumbling windows that no bound of a real window cuts."""
    kind = _overlapping(step)
    length = gcd(kind.size.ms, _end_period(kind).ms)
    return replace(step, window=Tumbling(Duration(length), kind.offset))


def _overlapping(step: WindowedStep) -> Overlapping:
    if not isinstance(step.window, Sliding | Cumulating):
        raise TypeError(f"{step.window} has no shared slices")
    return step.window


def _end_period(kind: Overlapping) -> Duration:
    """Return the time between the ends of consecutive windows."""
    return kind.every if isinstance(kind, Sliding) else kind.step


def slice_span(step: WindowedStep) -> int:
    """Return the event time that one state slice of shared slices covers."""
    kind = _overlapping(step)
    period = _end_period(kind).ms
    return period * max(1, kind.size.ms // period // SLICES)


def first_end_watermark(step: WindowedStep) -> pl.Expr:
    """Return the watermark that ends the first window of an element."""
    match _overlapping(step):
        case Sliding(size, every, offset):
            newest = since_boundary(every, offset)
            oldest = newest + (size.ms - 1 - newest) // every.ms * every.ms
            return max_timestamp(later(pl.col(AT), size.ms - oldest))
        case Cumulating(_, increment, offset):
            return max_timestamp(later(pl.col(AT), increment.ms - since_boundary(increment, offset)))


def last_end(step: WindowedStep) -> pl.Expr:
    """Return the end of the last window of an element."""
    match _overlapping(step):
        case Sliding(size, every, offset):
            return later(pl.col(AT), size.ms - since_boundary(every, offset))
        case Cumulating(size, _, offset):
            return later(pl.col(AT), size.ms - since_boundary(size, offset))


def first_open_instant(step: WindowedStep, watermark: int) -> int | None:
    """Return the first instant that has a window not ended by this watermark."""
    if watermark == FOREVER:
        return None
    kind = _overlapping(step)
    least = min(watermark, FOREVER - 2) + 2 - kind.size.ms
    return least + (kind.offset.ms - least) % _start_period(kind)


def next_end_watermark(step: WindowedStep, at: int, watermark: int) -> int:
    """Return the next watermark that ends a window of this instant."""
    end = next(_ends(_overlapping(step), max(at + 1, min(watermark, FOREVER - 2) + 2)))
    return FOREVER if end >= FOREVER else end - 1


def last_end_watermark(step: WindowedStep, at: int) -> int:
    """Return the watermark that ends the last window of an instant."""
    kind = _overlapping(step)
    end = at - (at - kind.offset.ms) % _start_period(kind) + kind.size.ms
    return FOREVER if end >= FOREVER else end - 1


def _start_period(kind: Overlapping) -> int:
    """Return the time between different window starts."""
    return kind.every.ms if isinstance(kind, Sliding) else kind.size.ms


def _ends(kind: Overlapping, least: int) -> Iterator[int]:
    """Yield window ends from `least` on, not clamped to the maximum timestamp."""
    period = _end_period(kind).ms
    phase = kind.offset.ms + (kind.size.ms if isinstance(kind, Sliding) else 0)
    end = least + (phase - least) % period
    while True:
        yield end
        end += period


def windows_ending(step: WindowedStep, first: int, last: int, before: int, after: int) -> Iterator[tuple[int, int]]:
    """Yield the windows of these shared slices that end while the watermark moves from `before` to `after`."""
    kind = _overlapping(step)
    size, offset = kind.size.ms, kind.offset.ms
    if before == FOREVER:
        return
    by = last - (last - offset) % _start_period(kind) + size
    if after < FOREVER:
        by = min(by, after + 1, FOREVER - 1)
    for end in _ends(kind, max(first + 1, before + 2)):
        if end > by:
            return
        start = end - size if isinstance(kind, Sliding) else end - 1 - (end - 1 - offset) % size
        yield max(start, NEVER), min(end, FOREVER)
