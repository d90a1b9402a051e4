"""State exported through Parquet into other key groups continues unchanged."""

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Self

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from strandline.execution.block_addresses import address
from strandline.kernel.operator import Exported
from strandline.kernel.operators import operator_of
from strandline.kernel.state_export import distribute, export, with_group_numbers
from strandline.model.windows import Count as CountWindow
from strandline.plan.stories.story_pipeline import GROUPS, StoryPipeline
from strandline.plan.stories.story_steps import Feed
from tests.kernel.players import KernelPlayer
from tests.properties.histories import ALL_TRIGGERS, SHARING, History, histories, on_reference, play, steps
from tests.properties.test_kernel_agrees import PLAIN, UNLIKE, in_order, restarted, thinned

FIVE: Final = 5
EACH: Final = 4

calm = settings(
    max_examples=EACH,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def through_parquet(moved: Exported, keys: Sequence[str]) -> Exported:
    """Write and read state as a savepoint does; every frame must survive."""
    back = {}
    for name, frame in moved.frames.items():
        numbered = with_group_numbers(frame, keys, GROUPS)
        file = io.BytesIO()
        numbered.write_parquet(file)
        file.seek(0)
        back[name] = pl.read_parquet(file)
        assert back[name].schema == numbered.schema
        assert back[name].equals(numbered)
    return replace(moved, frames={name: frame.drop("@group") for name, frame in back.items()})


class MovedPlayer(KernelPlayer):
    """A player that restarts through a savepoint and another number of key groups."""

    def restart(self) -> Self:
        (step,) = self._stages.steps
        again, operator = super().restart(), operator_of(step.operator, step.keys)
        held = [self._held.get(address(step, group), {}) for group in range(GROUPS)]
        spread = distribute(through_parquet(export(held), operator.keys), operator, FIVE)
        assert [*spread] == [*range(FIVE)]
        gone_back = distribute(export(spread.values()), operator, GROUPS)
        again._held = {address(step, group): dict(gone_back[group]) for group in range(GROUPS)}
        return again


def moved(pipeline: StoryPipeline) -> MovedPlayer:
    return MovedPlayer(pipeline.step, pipeline.watermark, partitions=pipeline.partitions)


def agree(history: History) -> None:
    history = replace(history, moves=(Feed(()), *history.moves))
    meant, told = play(history, on_reference), play(history, moved)
    for move, one, other in zip(history.moves, meant.emitted, told.emitted, strict=True):
        assert in_order(other) == in_order(one), move
    assert told.watermarks == meant.watermarks
    assert told.player.rows == meant.player.rows == 0


PLACES = st.sets(st.integers(1, 20), min_size=2)


@pytest.mark.slow
@calm
@given(history=histories(steps(triggers=ALL_TRIGGERS, extras=True)), places=PLACES)
def test_windows_of_every_kind_go_on_in_other_key_groups(history: History, places: set[int]) -> None:
    agree(restarted(history, places))


@pytest.mark.slow
@calm
@given(history=histories(SHARING), places=PLACES)
def test_windows_that_share_elements_go_on(history: History, places: set[int]) -> None:
    agree(restarted(thinned(history.under(aggregates=(*PLAIN, *UNLIKE))), places))


@pytest.mark.slow
@calm
@given(
    history=histories(), window=st.builds(CountWindow, st.integers(1, 4), st.none() | st.integers(1, 5)), places=PLACES
)
def test_windows_by_arrival_go_on(history: History, window: CountWindow, places: set[int]) -> None:
    step = history.pipeline.step
    asked = type(step)(step.aggregates, window, pane_timestamp=step.pane_timestamp)
    agree(restarted(history.over(asked), places))
