"""Strips: the stretches of event time that no bound of a window cuts, so that windows can share what lies in them.

All elements of a strip belong to the same windows. Where windows overlap and none speaks before its end, elements are
put together once, by strip; what a window holds is found when the watermark passes its end. A strip is known by its
first instant, which is inside time even where its windows reach beyond.
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
"""About so many slices of strips hold what one window needs."""


@cache
def has_no_early_panes(step: WindowedStep) -> bool:
    """Whether a window says nothing until the watermark ends it."""
    trigger = step.trigger.of if isinstance(step.trigger, Repeatedly) else step.trigger
    return isinstance(trigger, Never) or (isinstance(trigger, AfterWatermark) and trigger.early is None)


@cache
def uses_shared_slices(step: WindowedStep) -> bool:
    """Whether windows share strips: they overlap, and until the watermark ends them they are nothing but contents."""
    has_contents_only = step.pane_timestamp is PaneTimestamp.END_OF_WINDOW and step.evictor is None
    return has_no_early_panes(step) and has_contents_only and _overlap(step)


def _overlap(step: WindowedStep) -> bool:
    match step.window:
        case Sliding(size, every, _) | Cumulating(size, every, _):
            return size > every
    return False


@cache
def step_over_slices(step: WindowedStep) -> WindowedStep:
    """The step over strips: they are tumbling windows, as long as every bound of the real ones allows."""
    kind = _overlapping(step)
    length = gcd(kind.size.ms, _end_period(kind).ms)
    return replace(step, window=Tumbling(Duration(length), kind.offset))


def _overlapping(step: WindowedStep) -> Overlapping:
    if not isinstance(step.window, Sliding | Cumulating):
        raise TypeError(f"{step.window} has no shared slices")
    return step.window


def _end_period(kind: Overlapping) -> Duration:
    """From the end of one window to the end of the next."""
    return kind.every if isinstance(kind, Sliding) else kind.step


def slice_span(step: WindowedStep) -> int:
    """How much event time a slice of strips covers."""
    kind = _overlapping(step)
    period = _end_period(kind).ms
    return period * max(1, kind.size.ms // period // SLICES)


def first_end_watermark(step: WindowedStep) -> pl.Expr:
    """The watermark that ends the first of an element's windows."""
    match _overlapping(step):
        case Sliding(size, every, offset):
            newest = since_boundary(every, offset)
            oldest = newest + (size.ms - 1 - newest) // every.ms * every.ms
            return max_timestamp(later(pl.col(AT), size.ms - oldest))
        case Cumulating(_, increment, offset):
            return max_timestamp(later(pl.col(AT), increment.ms - since_boundary(increment, offset)))


def last_end(step: WindowedStep) -> pl.Expr:
    """The end of the last of an element's windows."""
    match _overlapping(step):
        case Sliding(size, every, offset):
            return later(pl.col(AT), size.ms - since_boundary(every, offset))
        case Cumulating(size, _, offset):
            return later(pl.col(AT), size.ms - since_boundary(size, offset))


def first_open_instant(step: WindowedStep, watermark: int) -> int | None:
    """The first instant with a window that this watermark has not ended."""
    if watermark == FOREVER:
        return None
    kind = _overlapping(step)
    least = min(watermark, FOREVER - 2) + 2 - kind.size.ms
    return least + (kind.offset.ms - least) % _start_period(kind)


def next_end_watermark(step: WindowedStep, at: int, watermark: int) -> int:
    """The watermark, above this one, that ends the next window of such an instant."""
    end = next(_ends(_overlapping(step), max(at + 1, min(watermark, FOREVER - 2) + 2)))
    return FOREVER if end >= FOREVER else end - 1


def last_end_watermark(step: WindowedStep, at: int) -> int:
    """The watermark that ends the last window of an instant."""
    kind = _overlapping(step)
    end = at - (at - kind.offset.ms) % _start_period(kind) + kind.size.ms
    return FOREVER if end >= FOREVER else end - 1


def _start_period(kind: Overlapping) -> int:
    """From the start of one window to the next start that is another."""
    return kind.every.ms if isinstance(kind, Sliding) else kind.size.ms


def _ends(kind: Overlapping, least: int) -> Iterator[int]:
    """Ends of windows from here on, without regard to the end of time."""
    period = _end_period(kind).ms
    phase = kind.offset.ms + (kind.size.ms if isinstance(kind, Sliding) else 0)
    end = least + (phase - least) % period
    while True:
        yield end
        end += period


def windows_ending(step: WindowedStep, first: int, last: int, before: int, after: int) -> Iterator[tuple[int, int]]:
    """The windows of strips from one to another that end while the watermark goes from `before` to `after`."""
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
