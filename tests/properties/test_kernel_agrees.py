"""The kernel agrees with the oracle: the same panes and late elements for every pipeline and history.

Restarts are mixed in, since the kernel keeps bytes and the oracle keeps values.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.model.aggregates import Aggregate, AnyTrue, Count, CountDistinct, Last, Max, Mean, Min, Sum, TopK
from strandline.model.elements import Element
from strandline.model.panes import Emitted, LateRows
from strandline.model.windows import Count as CountWindow
from strandline.model.windows import Tumbling
from strandline.plan.stories.story_pipeline import StoryPipeline
from strandline.plan.stories.story_steps import Feed, Move, MoveWatermark, Restart
from tests.kernel.players import KernelPlayer
from tests.properties.budget import examples
from tests.properties.histories import (
    ALL_TRIGGERS,
    SHARING,
    History,
    histories,
    lengths,
    on_reference,
    play,
    steps,
)

EACH: Final = examples(50)

PLAIN: tuple[tuple[str, Aggregate], ...] = (
    ("n", Count()),
    ("given", Count("v")),
    ("total", Sum("v")),
    ("least", Min("v")),
    ("top", Max("v")),
    ("average", Mean("v")),
)
"""Aggregates of the first pipelines, with nulls among the values."""

UNLIKE: tuple[tuple[str, Aggregate], ...] = (
    ("some", AnyTrue("v")),
    ("latest", Last("v")),
    ("kinds", CountDistinct("v")),
    ("best", TopK("v", 2)),
)
"""Non-numeric aggregates, and aggregates with items."""


def calm(test: Any) -> Any:
    """Generate the same histories in every run, so that failures are reproducible."""
    return settings(
        max_examples=EACH,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )(test)


def on_kernel(pipeline: StoryPipeline) -> KernelPlayer:
    return KernelPlayer(
        pipeline.step,
        pipeline.watermark,
        partitions=pipeline.partitions,
        fires_per_element=pipeline.fires_per_element,
    )


def agree(history: History) -> None:
    # A first batch without elements, so that both first know their partitions at the epoch: the oracle does so before
    # any batch, the kernel with its first.
    history = replace(history, moves=(Feed(()), *history.moves))
    meant, told = play(history, on_reference), play(history, on_kernel)
    for move, one, other in zip(history.moves, meant.emitted, told.emitted, strict=True):
        assert in_order(other) == in_order(one), move
    assert told.watermarks == meant.watermarks
    assert told.player.is_idle == meant.player.is_idle
    assert told.player.rows == meant.player.rows == 0


def in_order(emitted: Emitted) -> Emitted:
    """Sort output whose order is not defined: between keys and windows, and between late elements."""
    panes = sorted(emitted.panes, key=lambda pane: str(pane.key))
    late = sorted(emitted.late, key=lambda row: (row.element.partition, row.element.offset, str(row.window)))
    dead = sorted(emitted.dead, key=str)
    return Emitted(tuple(panes), tuple(late), tuple(dead))


def restarted(history: History, places: set[int]) -> History:
    moves: list[Move] = []
    for place, move in enumerate(history.moves):
        moves += [Restart(), move] if place in places else [move]
    return replace(history, moves=tuple(moves))


def thinned(history: History) -> History:
    """Remove the value of some elements."""

    def thin(element: Element) -> Element:
        return replace(element, columns={} if element.columns["v"] == 0 else element.columns)

    moves = [Feed(tuple(map(thin, move.elements))) if isinstance(move, Feed) else move for move in history.moves]
    return replace(history, moves=tuple(moves))


def jumping(moves: Sequence[Move], far: int) -> Iterator[Move]:
    """Skip most moves of the watermark, so that one move passes the ends of many windows."""
    waits = 0
    for move in moves:
        waits += isinstance(move, MoveWatermark)
        if not isinstance(move, MoveWatermark) or waits % far == 0:
            yield move


@calm
@given(history=histories(steps(triggers=ALL_TRIGGERS, extras=True)), places=st.sets(st.integers(0, 30)))
def test_the_kernel_tells_what_the_oracle_tells(history: History, places: set[int]) -> None:
    agree(restarted(history, places))


@pytest.mark.slow
@calm
@given(history=histories(steps(windows=st.builds(Tumbling, lengths(3, 12), lengths(-2, 2)))))
def test_plain_windows_agree_also_where_values_are_missing(history: History) -> None:
    agree(thinned(history.under(aggregates=PLAIN)))


@pytest.mark.slow
@calm
@given(history=histories(SHARING), places=st.sets(st.integers(0, 30)))
def test_windows_that_share_elements_agree(history: History, places: set[int]) -> None:
    agree(restarted(history, places))


@pytest.mark.slow
@calm
@given(history=histories(SHARING, by_hand=True), places=st.sets(st.integers(0, 30)), far=st.integers(2, 9))
def test_windows_that_share_elements_agree_when_time_jumps(history: History, places: set[int], far: int) -> None:
    history = replace(history, moves=tuple(jumping(history.moves, far)))
    agree(restarted(thinned(history.under(aggregates=(*PLAIN, *UNLIKE))), places))


@calm
@given(history=histories(), window=st.builds(CountWindow, st.integers(1, 4), st.none() | st.integers(1, 5)))
def test_windows_by_arrival_agree(history: History, window: CountWindow) -> None:
    step = history.pipeline.step
    asked = type(step)(step.aggregates, window, pane_timestamp=step.pane_timestamp)
    agree(history.over(asked))


@pytest.mark.slow
@calm
@given(history=histories(steps(triggers=ALL_TRIGGERS)))
def test_they_agree_when_every_element_is_a_batch_of_its_own(history: History) -> None:
    lateness = replace(history.pipeline.step.lateness, rows=LateRows.PER_WINDOW)
    history = history.under(lateness=lateness)
    agree(replace(history, pipeline=replace(history.pipeline, fires_per_element=True)))
