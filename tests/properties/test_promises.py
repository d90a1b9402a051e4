"""Check invariants of the model on generated pipelines and histories."""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.model.elements import BEGINNING, Element
from strandline.model.panes import Accumulation, Emitted, LateRows, Pane, Timing
from strandline.model.steps import WindowedStep
from strandline.model.triggers import DEFAULT
from strandline.model.windows import Count, Session
from strandline.plan.stories.story_steps import Drain, Feed, Move, Restart
from strandline.reference.windows import windows_of
from tests.properties.budget import examples
from tests.properties.histories import (
    AGGREGATES,
    ALL_TRIGGERS,
    ENDLESS,
    FIXED,
    SESSIONS,
    History,
    by_identity,
    final_table,
    histories,
    play,
    steps,
)

EACH: Final = examples(500)


def promise(**strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test over its share of the histories, the same in every run, so that failures are reproducible."""

    def prepared(test: Callable[..., None]) -> Callable[..., None]:
        calm = settings(
            max_examples=EACH,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        return calm(given(**strategies)(test))

    return prepared


EVERY_WAY = histories(steps(triggers=ALL_TRIGGERS, extras=True))
PLAIN = histories(steps(triggers=ALL_TRIGGERS))
UNLIMITED = histories(steps(triggers=ENDLESS, allowed=(None,)), by_hand=True)


@promise(history=EVERY_WAY)
def test_every_element_is_counted_once(history: History) -> None:
    played = play(history)
    tally = played.player.tally
    assert tally.is_conserved
    assert tally.elements == len(history.elements)
    late = list(chain.from_iterable(each.late for each in played.emitted))
    whole = (
        late
        if history.pipeline.step.lateness.rows is LateRows.PER_ELEMENT
        else [row for row in late if not row.partial]
    )
    assert len({(row.element.partition, row.element.offset) for row in whole}) == sum(tally.late.values())
    assert played.player.rows == 0


@promise(history=PLAIN)
def test_what_is_taken_in_comes_out_exactly_once(history: History) -> None:
    """Every element is told once by each window that took it, whatever was discarded, kept or taken back meanwhile."""
    lateness = replace(history.pipeline.step.lateness, rows=LateRows.PER_WINDOW)
    history = history.under(lateness=lateness, final_pane="if_non_empty")
    played = play(history)
    put_aside = [
        Element(letter.columns["at"], None)
        for each in played.emitted
        for letter in each.dead
        if letter.reason == "future"
    ]
    came, dead = (
        sum(len(windows_of(element, history.pipeline.step.window)) for element in some)
        for some in (history.elements, put_aside)
    )
    taken = came - dead - sum(len(each.late) for each in played.emitted)
    if history.pipeline.step.accumulation is not Accumulation.ACCUMULATING:
        told = sum(-pane.values["n"] if pane.retraction else pane.values["n"] for pane in played.panes)
        assert told == taken
    elif not isinstance(history.pipeline.step.window, Session):  # sessions leave stale rows under old bounds
        assert sum(panes[-1].values["n"] for panes in by_identity(played.panes).values()) == taken


@promise(history=histories(steps(windows=FIXED)))
def test_discarding_panes_sum_to_the_accumulating_value(history: History) -> None:
    discarded = by_identity(play(history.under(accumulation=Accumulation.DISCARDING)).panes)
    accumulated = by_identity(play(history.under(accumulation=Accumulation.ACCUMULATING)).panes)
    assert discarded.keys() == accumulated.keys()
    for identity, panes in discarded.items():
        for name in ("n", "total"):
            sums = [*accumulate(pane.values[name] for pane in panes)]
            assert sums == [pane.values[name] for pane in accumulated[identity]]


@promise(history=histories())
def test_panes_less_retractions_are_the_last_accumulating_values(history: History) -> None:
    accumulated = play(history.under(accumulation=Accumulation.ACCUMULATING))
    retracted = play(history.under(accumulation=Accumulation.RETRACTING))
    assert retracted.told == accumulated.panes
    standing: dict[Any, Pane] = {}
    for emitted in retracted.emitted:
        for pane in emitted.panes:
            identity = (pane.key, pane.window)
            if pane.retraction:
                assert replace(pane, retraction=False) == standing.pop(identity)
            else:
                assert identity not in standing or standing[identity].is_last
                standing[identity] = pane
    if not isinstance(history.pipeline.step.window, Session):
        last = {identity: panes[-1] for identity, panes in by_identity(accumulated.panes).items()}
        assert standing == last


@promise(history=EVERY_WAY)
def test_timings_and_numbers_go_in_order(history: History) -> None:
    """EARLY*, ON_TIME?, LATE*; 0, 1, 2, …; first, then perhaps last. A session's bounds may live more than once."""
    order = [*Timing]
    reborn = isinstance(history.pipeline.step.window, Session) or history.pipeline.step.ttl is not None
    for panes in by_identity(play(history).told).values():
        assert panes[0].is_first
        assert sum(pane.is_first for pane in panes) == 1 or reborn
        for before, after in pairwise(panes):
            if after.is_first:
                assert after.index == 0
                continue
            assert not before.is_last
            assert after.index == before.index + 1
            assert order.index(after.timing) >= order.index(before.timing)
            assert after.timing is not Timing.ON_TIME or before.timing is Timing.EARLY
            spoken = -1 if after.timing is Timing.EARLY else before.nonspeculative_index + 1
            assert after.nonspeculative_index == spoken


@promise(history=UNLIMITED, order=st.randoms(use_true_random=False))
def test_without_a_bound_on_lateness_the_order_of_arrival_does_not_matter(history: History, order: Any) -> None:
    history = history.under(accumulation=Accumulation.RETRACTING)
    shuffled = history.elements
    order.shuffle(shuffled)
    left = iter(shuffled)
    other = [
        Feed(tuple(next(left) for _ in move.elements)) if isinstance(move, Feed) else move for move in history.moves
    ]
    at_once = (Feed(tuple(history.elements)), Drain())
    table = final_table(play(history).panes)
    assert table == final_table(play(replace(history, moves=tuple(other))).panes)
    assert table == final_table(play(replace(history, moves=at_once)).panes)


def split(move: Move) -> list[Move]:
    return [Feed((element,)) for element in move.elements] if isinstance(move, Feed) else [move]


@promise(history=histories(steps(windows=FIXED, triggers=ENDLESS), by_hand=True) | UNLIMITED)
def test_splitting_a_batch_moves_panes_but_no_element_and_no_final_value(history: History) -> None:
    history = history.under(accumulation=Accumulation.RETRACTING)
    whole = play(history)
    parts = play(replace(history, moves=tuple(chain.from_iterable(map(split, history.moves)))))
    assert parts.player.tally == whole.player.tally
    assert final_table(parts.panes) == final_table(whole.panes)
    if history.pipeline.step.trigger == DEFAULT and not isinstance(history.pipeline.step.window, Session):
        timely = [[pane for pane in each.told if pane.timing is not Timing.LATE] for each in (whole, parts)]
        assert _sorted_values(timely[0]) == _sorted_values(timely[1])


def _sorted_values(panes: list[Pane]) -> list[Pane]:
    """Panes whose collected values are in one order."""
    return [replace(pane, values={**pane.values, "all": sorted(pane.values["all"])}) for pane in panes]


@promise(history=EVERY_WAY, places=st.sets(st.integers(0, 30), min_size=1))
def test_a_restart_changes_nothing(history: History, places: set[int]) -> None:
    moves: list[Move] = []
    for place, move in enumerate(history.moves):
        moves += [Restart(), move] if place in places else [move]
    straight, stopped = play(history), play(replace(history, moves=tuple(moves)))
    assert [each for each in stopped.emitted if each != Emitted()] == [
        each for each in straight.emitted if each != Emitted()
    ]
    for fact in ("tally", "rows", "watermark", "output_watermark", "is_idle"):
        assert getattr(stopped.player, fact) == getattr(straight.player, fact)


@promise(history=histories(steps(triggers=ALL_TRIGGERS), by_hand=True))
def test_the_order_of_rows_in_a_batch_does_not_matter(history: History) -> None:
    def turned(move: Move) -> Move:
        if not isinstance(move, Feed):
            return move
        offsets = [element.offset for element in move.elements]
        turn = zip(reversed(move.elements), offsets, strict=True)
        return Feed(tuple(replace(element, offset=offset) for element, offset in turn))

    straight, other = play(history), play(replace(history, moves=tuple(map(turned, history.moves))))
    assert _sorted_values(straight.panes) == _sorted_values(other.panes)
    assert straight.player.tally == other.player.tally


@promise(history=EVERY_WAY)
def test_time_never_runs_back_and_nothing_timely_is_behind_what_was_forwarded(history: History) -> None:
    played = play(history)
    forwarded = BEGINNING
    for (watermark, output), emitted in zip(played.watermarks, played.emitted, strict=True):
        for pane in emitted.panes:
            assert pane.retraction or pane.timing is Timing.LATE or pane.timestamp > forwarded
        assert forwarded <= output <= watermark
        forwarded = output
    assert all(before[0] <= after[0] for before, after in pairwise(played.watermarks))


@promise(history=histories(by_hand=True), size=st.integers(1, 4), every=st.none() | st.integers(1, 4))
def test_count_windows_hold_exactly_what_they_count(history: History, size: int, every: int | None) -> None:
    history = history.over(WindowedStep(AGGREGATES, Count(size, every)))
    told = by_key(play(history).panes)
    for key in "ab":
        batches = [
            sorted(move.elements, key=lambda element: (element.partition, element.offset))
            for move in history.moves
            if isinstance(move, Feed)
        ]
        values = [element.columns["v"] for element in chain.from_iterable(batches) if element.key == key]
        slide = every or size
        ends = [*range(slide, len(values) + 1, slide)]
        ends += [len(values)] if len(values) % slide else []
        chunks = [values[max(end - size, 0) if every else (end - 1) // size * size : end] for end in ends]
        assert [sorted(pane.values["all"]) for pane in told.get(key, [])] == [sorted(chunk) for chunk in chunks]


def by_key(panes: list[Pane]) -> dict[Any, list[Pane]]:
    found: dict[Any, list[Pane]] = {}
    for pane in panes:
        found.setdefault(pane.key, []).append(pane)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [FIXED, SESSIONS])
def test_the_generator_is_worth_its_time(strategy: Any) -> None:
    """Histories have what the promises are about: late elements, merges, early and late panes, finished triggers."""
    seen = set[str]()

    @settings(max_examples=400, derandomize=True, database=None, deadline=None)
    @given(history=histories(steps(windows=strategy, triggers=ALL_TRIGGERS)))
    def look(history: History) -> None:
        played = play(history)
        seen.update(str(pane.timing) for pane in played.panes)
        seen.update(f"late {row.reason}" for each in played.emitted for row in each.late)
        seen.update("last" for pane in played.panes if pane.is_last)
        seen.update("retraction" for pane in played.panes if pane.retraction)
        seen.update("several" for panes in by_identity(played.told).values() if len(panes) > 2)

    look()
    assert seen >= {"early", "on_time", "late", "late expired", "late closed", "last", "retraction", "several"}
