"""Generated pipelines carried by Spark: twenty in one query and in lockstep, ten keys each, against the oracle."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession

from strandline.plan.stories.story_steps import Restart
from strandline.spark.story_player import Carrier, SparkPlayer
from tests.properties.crowds import crowds, difference, shown
from tests.properties.histories import History, Played, play

PIPELINES: Final = 20
KEYS: Final[Sequence[Any]] = (*(f"key {number}" for number in range(9)), None)


def generated() -> list[History]:
    """The same histories in every run; one of them restarts, and with it all, as they share a query."""
    found: list[History] = []

    @settings(
        max_examples=5 * PIPELINES,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(history=crowds(KEYS))
    def gather(history: History) -> None:
        found.append(history)

    gather()
    chosen = Random(4).sample(found, PIPELINES)
    first = next(place for place, history in enumerate(chosen) if without_restarts(history) != history)
    return [history if place == first else without_restarts(history) for place, history in enumerate(chosen)]


def without_restarts(history: History) -> History:
    return replace(history, moves=tuple(move for move in history.moves if not isinstance(move, Restart)))


def play_together(spark: SparkSession, histories: Sequence[History]) -> list[Played]:
    pipelines = [history.pipeline for history in histories]
    carrier = Carrier(spark, {number: each.stages for number, each in enumerate(pipelines)})

    def played(number: int, history: History) -> Played:
        player = SparkPlayer(carrier, number, history.pipeline)
        try:
            return play(history, lambda _: player)
        finally:
            player.close()

    with ThreadPoolExecutor(len(histories)) as threads:
        return list(threads.map(played, range(len(histories)), histories))


@pytest.mark.spark
def test_every_key_of_every_pipeline_is_told_what_the_oracle_tells_it(spark: SparkSession) -> None:
    histories = generated()
    for history, told in zip(histories, play_together(spark, histories), strict=True):
        differs = difference(told, play(history))
        assert differs is None, shown(history, differs)
