"""Crowds: each key has a history of its own, and the kernel agrees with the oracle for every key.

A run of the kernel with fifty keys costs little more than one with a single key, so most histories are crowds.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from strandline.execution.batch import Batch
from strandline.execution.prepare import Blocks, prepare_scan
from strandline.execution.story_batch import Packet, prepared
from strandline.kernel.aggregation import skip_preaggregation
from strandline.model.aggregates import Aggregate, Count, Max, Mean, Min, Sum
from strandline.model.panes import Emitted
from strandline.model.steps import WindowedStep
from strandline.model.triggers import AfterCount, Repeatedly
from strandline.model.watermarks import BY_HAND
from strandline.model.windows import Tumbling
from strandline.plan.stories.story_pipeline import StoryPipeline
from strandline.reference.player import ReferencePlayer
from tests.kernel.players import KernelPlayer
from tests.properties.budget import examples
from tests.properties.crowds import check, crowds
from tests.properties.histories import AGGREGATES, History, crowded, play, seconds

KEYS: Final[Sequence[Any]] = (*(f"key {number}" for number in range(49)), None)
IN_ROWS: Final[tuple[tuple[str, Aggregate], ...]] = (
    ("n", Count()), ("given", Count("v")), ("total", Sum("v")), ("least", Min("v")), ("top", Max("v")),
    ("average", Mean("v")),
)  # fmt: skip
EACH: Final = examples(10)
"""Each example has a history for each of 50 keys."""

# `check` reduces a failing crowd within a limit; shrinking by Hypothesis would take an hour.
calm = settings(
    max_examples=EACH,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Scattered(KernelPlayer):
    """Split each batch into several tasks, each with another horizon or none."""

    chance: Random

    def _prepared(self, packet: Packet, batch: Batch) -> Blocks:
        blocks = prepared(replace(packet, rows={}), self._stages, batch)
        for number, rows in packet.rows.items():
            # A task reads a range of a partition, not single records here and there.
            of = pl.Series(sorted(self.chance.randrange(3) for _ in range(rows.height)), dtype=pl.Int64)
            for task in range(3):
                if (of == task).any():
                    blocks += self._task(rows.filter(of == task), number, task, batch)
        return blocks

    def _task(self, rows: pl.DataFrame, scan: int, task: int, batch: Batch) -> Blocks:
        exact = batch.horizons[0]
        horizon = self.chance.choice([None, exact, exact + self.chance.randrange(20_000)])
        known = Batch(batch.clock, {} if horizon is None else {0: horizon})
        return prepare_scan(rows, self._stages.scans[scan], self._stages.by_number, None, known, task)


def on_kernel(pipeline: StoryPipeline) -> KernelPlayer:
    return KernelPlayer(pipeline.step, pipeline.watermark, partitions=pipeline.partitions)


@calm
@given(history=crowds(KEYS))
def test_every_key_of_a_crowd_is_told_what_the_oracle_tells_it(history: History) -> None:
    check(history, on_kernel)


@pytest.mark.slow
@calm
@given(history=crowds(KEYS), seed=st.integers(0, 10**9))
def test_it_does_not_matter_which_task_an_element_came_from_nor_what_it_knew_of_the_watermark(
    history: History, seed: int
) -> None:
    def scattered(pipeline: StoryPipeline) -> KernelPlayer:
        player = Scattered(pipeline.step, pipeline.watermark, partitions=pipeline.partitions)
        player.chance = Random(seed)
        return player

    check(history, scattered)


class Uncombined(Scattered):
    """Skip pre-aggregation in some tasks."""

    def _task(self, rows: pl.DataFrame, scan: int, task: int, batch: Batch) -> Blocks:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(skip_preaggregation, "_rarely_repeats", lambda *_: self.chance.random() < 0.7)
            return super()._task(rows, scan, task, batch)


@pytest.mark.slow
@calm
@given(history=crowds(KEYS), seed=st.integers(0, 10**9))
def test_it_does_not_matter_whether_elements_were_combined_before_they_came(history: History, seed: int) -> None:
    def uncombined(pipeline: StoryPipeline) -> KernelPlayer:
        player = Uncombined(pipeline.step, pipeline.watermark, partitions=pipeline.partitions)
        player.chance = Random(seed)
        return player

    check(history.under(aggregates=IN_ROWS), uncombined)


class Forgetful(ReferencePlayer):
    """A faulty player: one key gets only the first pane of each window."""

    def _play(self, *batch: Any, is_drain: bool = False) -> Emitted:
        emitted = super()._play(*batch, is_drain=is_drain)
        panes = [pane for pane in emitted.panes if pane.key != "key 7" or pane.is_first]
        return replace(emitted, panes=tuple(panes))


@pytest.mark.slow
def test_a_crowd_that_fails_is_cut_down_to_the_key_and_the_moves_it_takes() -> None:
    asked = WindowedStep(AGGREGATES, Tumbling(seconds(10)), Repeatedly(AfterCount(1)))
    history = crowded(asked, (BY_HAND, ()), KEYS, Random(1))
    with pytest.raises(AssertionError) as failed:
        check(history, lambda pipeline: Forgetful(pipeline.step, pipeline.watermark))
    said, pipeline, *moves = str(failed.value).splitlines()
    assert said.startswith("move 1, 'key 7': told ([], [], []), meant ([Pane(key='key 7'")
    assert pipeline == str(history.pipeline)
    assert len(moves) == 2  # one fires the window, the other would fire it again
    assert moves[0].count("Element(") == 1


@pytest.mark.slow
def test_crowds_are_worth_their_time() -> None:
    """They contain panes of every timing, retractions, late elements of every reason, and dead letters."""
    seen = set[str]()

    @settings(calm, max_examples=80)
    @given(history=crowds(KEYS[::8]))
    def look(history: History) -> None:
        played = play(history)
        seen.add(f"{type(history.pipeline.step.window).__name__} windows")
        seen.add(f"{history.pipeline.step.time} time")
        for emitted in played.emitted:
            seen.update(f"{pane.timing} pane" for pane in emitted.panes)
            seen.update("retraction" for pane in emitted.panes if pane.retraction)
            seen.update(f"{row.reason} element" for row in emitted.late)
            seen.update("partly late element" for row in emitted.late if row.partial)
            seen.update(letter.reason for letter in emitted.dead)

    look()
    assert seen >= {
        "early pane", "on_time pane", "late pane", "retraction", "expired element", "closed element",
        "partly late element", "no_event_time", "future", "bad_gap", "bad_window", "processing time", "Count windows",
        "Tumbling windows", "Sliding windows", "Cumulating windows", "Session windows", "Global windows",
        "Custom windows",
    }  # fmt: skip
