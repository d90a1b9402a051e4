"""The benchmark of metrics, without its runs: which batches are compared, what they cost, and what the page tells."""

from itertools import pairwise

import pytest

from benchmarks import render
from benchmarks.corpus import Corpus
from benchmarks.watching import Heard, Pair, Switch, interval, is_kept, pairs_of, to_results
from strandline.execution.batch import Batch
from strandline.observe.metrics.observer import Recorder
from strandline.spark.delivery import deliver
from tests.benchmarks.sample import results


def pair(cost: float, cpu: float = 0.0) -> Pair:
    return Pair(1 + cost, 1.0, 2 * (1 + cpu), 2.0)


def test_each_way_comes_first_as_often_as_second() -> None:
    ways = [is_kept(batch, 2) for batch in range(16)]
    assert ways == [True, True, False, False, False, False, True, True] * 2


def test_the_first_batch_of_a_stretch_does_not_count() -> None:
    lengths = [9.0, 1.1, 1.1, 9.0, 1.0, 1.0]
    ends = [sum(lengths[: number + 1]) for number in range(6)]
    heard = [Heard(is_kept(number, 3), end, 2 * end) for number, end in enumerate(ends)]
    (found,) = pairs_of(heard, 3)
    assert (round(found.cost, 6), round(found.cpu, 6)) == (0.1, 0.1)
    assert pairs_of(heard[:5], 3) == []


def test_the_cost_is_the_middle_of_all_pairs_and_the_page_tells_it() -> None:
    told = to_results([pair(0.01, 0.02), pair(0.011, 0.02), pair(0.009, 0.02)], Corpus(1_000, 2), "the command")
    assert round(told["cost"]["median"], 6) == 0.01
    assert told["cost"]["reached"]
    page = render.page(results(), of_watching=told)
    assert "| time of a batch | +1.0% | +0.9% to +1.1% | < 2% | goal reached |" in page
    assert "| CPU time of a batch | +2.0% | +2.0% to +2.0% | | |" in page


def test_a_goal_that_chance_may_have_reached_is_not_reached() -> None:
    told = to_results([pair(each / 100) for each in (-9, -5, 1, 6, 9)], Corpus(1_000, 2), "the command")
    assert told["cost"]["median"] < 0.02
    assert "**goal not reached**" in render.page(results(), of_watching=told)


def test_the_middle_of_more_values_is_surer() -> None:
    few, many = ([each / 10 for each in range(-10, 11)] * times for times in (1, 20))
    widths = [most - least for least, most in (interval(few), interval(many))]
    assert all(wide > narrow for wide, narrow in pairwise(widths))


def test_metrics_are_switched_for_tasks_and_for_who_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    kept: list[int] = []
    monkeypatch.setattr(deliver, "send", lambda _, batch: told.append(batch.measured))
    monkeypatch.setattr(Recorder, "delivered", lambda _, batch, __: kept.append(batch))
    monkeypatch.setattr(Recorder, "_step", Recorder._step)  # to be put back
    switch = Switch(stretch=1)
    switch.put()
    for number in range(4):
        getattr(deliver, "send")(None, Batch(measured=True))  # noqa: B009 - it is there by import, and not for others
        Recorder.delivered(None, number, None)  # type: ignore[arg-type]
    assert (told, kept) == ([True, False, False, True], [0, 3])
    assert [each.kept for each in switch.heard] == told
