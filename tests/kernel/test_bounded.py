"""Bounded input: all of it in one batch tells what the same elements tell batch by batch, and nothing is late."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from random import Random
from typing import Any, Final

import pytest

from strandline.model.elements import Element, Timestamp
from strandline.model.panes import Accumulation, Emitted, Lateness, Pane, Timing
from strandline.model.steps import WindowedStep
from strandline.model.triggers import DEFAULT, AfterCount, AfterWatermark, Never, Trigger
from strandline.model.watermarks import Bounded, Watermark
from strandline.model.windows import (
    Cumulating,
    Custom,
    GapColumn,
    Global,
    Session,
    Sliding,
    Tumbling,
    Window,
    WindowKind,
)
from strandline.plan.operators import plan_of
from tests.contracts.test_aggregates import ALL
from tests.kernel.players import KernelPlayer
from tests.properties.histories import seconds

LATE: Final = 20
"""Seconds by which an element comes late at most, and for which the watermark waits."""
BATCH: Final = 60
WINDOWS: Final[Sequence[WindowKind]] = (
    Tumbling(seconds(30)),
    Sliding(seconds(40), seconds(10)),
    Sliding(seconds(10), seconds(30)),
    Cumulating(seconds(60), seconds(20)),
    Session(seconds(4)),
    Session(GapColumn("gap")),
    Custom("begin", "end"),
    Global(),
)
OTHERS: Final[Sequence[Trigger]] = (
    AfterWatermark(late=AfterCount(1)),
    AfterWatermark(early=AfterCount(3), late=AfterCount(1)),
    Never(),
)


def history(seed: int) -> list[Element]:
    """Elements in the order in which they came, none later than is waited for."""
    chance, found = Random(seed), []
    for offset in range(120):
        at = (offset + 100 - chance.randrange(LATE)) * 1000
        begin = at // 7000 * 7000
        values = {
            "v": chance.choice([None, *range(-8, 9)]), "w": chance.choice(["x", "y", "z", None]), "gap": 5_000,
            "b": chance.choice([True, False, None]), "begin": begin, "end": begin + 7000,
        }  # fmt: skip
        found.append(Element(Timestamp(at), chance.choice("abcde"), values, offset=offset))
    return found


def player(step: WindowedStep) -> KernelPlayer:
    return KernelPlayer(step, Watermark(Bounded(seconds(LATE))), partitions=("",))


def by_arrival(step: WindowedStep, elements: Sequence[Element]) -> Emitted:
    mine = player(step)
    parts = [elements[first : first + BATCH] for first in range(0, len(elements), BATCH)]
    return sum((mine.feed(part) for part in parts), Emitted()) + mine.drain()


def at_once(step: WindowedStep, elements: Sequence[Element]) -> Emitted:
    """The only batch is also the last: its elements come with the end of the input."""
    mine = player(step)
    (scan,) = mine._stages.scans
    return mine._play({0: mine._frame(scan, elements)}, drain=True)


def answers(emitted: Emitted) -> dict[tuple[Any, Window], Mapping[str, Any]]:
    """What stands in the end: of each key and window the newest pane, unless it was taken back."""
    found: dict[tuple[Any, Window], Mapping[str, Any]] = {}
    for pane in emitted.panes:
        if pane.retraction:
            del found[pane.key, pane.window]
        else:
            found[pane.key, pane.window] = pane.values
    return found


def alike(one: Any, other: Any) -> bool:
    """Sums of parts may be rounded otherwise than sums of all."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)


def check(step: WindowedStep, elements: Sequence[Element]) -> None:
    streamed, whole = by_arrival(step, elements), at_once(step, elements)
    assert not whole.late
    assert not streamed.late
    expected, found = answers(streamed), answers(whole)
    assert found.keys() == expected.keys()
    assert found
    for place, values in expected.items():
        wrong = {
            name: (found[place][name], each) for name, each in values.items() if not alike(found[place][name], each)
        }
        assert not wrong, place
    assert len(whole.panes) == len(found)
    if step.trigger != Never():
        assert {pane.timing for pane in whole.panes} == {Timing.ON_TIME}


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS, ids=lambda value: str(value)[:40])
def test_all_at_once_tells_what_a_stream_of_the_same_elements_tells(window: WindowKind) -> None:
    aggregates = tuple((f"a{number}", each) for number, each in enumerate(ALL))
    for accumulation in Accumulation:
        check(WindowedStep(aggregates, window, DEFAULT, accumulation, Lateness(seconds(60))), history(seed=7))


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS, ids=lambda value: str(value)[:40])
def test_whatever_else_speaks_early_or_late_the_answers_are_the_same(window: WindowKind) -> None:
    aggregates = (("total", ALL[2]), ("many", ALL[0]), ("newest", ALL[10]))
    for trigger, accumulation in product(OTHERS, Accumulation):
        step = WindowedStep(aggregates, window, trigger, accumulation, Lateness(seconds(60)))
        if plan_of(step).order_dependence is None:
            check(step, history(seed=9))


@pytest.mark.slow
def test_where_nothing_speaks_early_even_the_panes_are_the_same() -> None:
    elements = history(seed=8)
    for window in WINDOWS:
        step = WindowedStep((("total", ALL[2]), ("many", ALL[0])), window)

        def told(emitted: Emitted) -> list[Pane]:
            return sorted(emitted.panes, key=lambda pane: (str(pane.key), pane.window.start.ms, pane.window.end.ms))

        assert told(at_once(step, elements)) == told(by_arrival(step, elements))
