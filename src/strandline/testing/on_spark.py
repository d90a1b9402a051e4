"""Play stories on Spark: all of them in one query, in the active session or in a new one."""

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from strandline.kernel.player import step_spec_of
from strandline.kernel.step import StepSpec
from strandline.plan.stories.play import Outcome, perform
from strandline.plan.stories.player_protocol import Player
from strandline.plan.stories.story import Story, StoryPipeline
from strandline.spark.launch.preflight import require_machine
from strandline.spark.launch.session import start_session
from strandline.spark.story_player import Carrier, SparkPlayer


def play_together(stories: Sequence[Story]) -> list[Outcome]:
    """Play stories in lockstep; stories that are invalid when read never reach Spark."""
    played = {number: story for number, story in enumerate(stories) if story.refusal is None}
    if not played:
        return [perform(story, play_alone) for story in stories]
    carrier = Carrier(_session(), {number: _ask(story.pipeline) for number, story in played.items()})

    def outcome(number: int, story: Story) -> Outcome:
        return perform(story, lambda pipeline: _player(carrier, number, pipeline))

    # Each player waits for the others, so each needs a thread.
    with ThreadPoolExecutor(len(stories)) as threads:
        return list(threads.map(outcome, range(len(stories)), stories))


def play_alone(pipeline: StoryPipeline) -> Player:
    """Return a player for one pipeline, in a query of its own."""
    return _player(Carrier(_session(), {0: _ask(pipeline)}), 0, pipeline)


def _ask(pipeline: StoryPipeline) -> StepSpec:
    return step_spec_of(pipeline.operator, pipeline.watermark, pipeline.partitions)


def _player(carrier: Carrier, number: int, pipeline: StoryPipeline) -> SparkPlayer:
    return SparkPlayer(
        carrier,
        number,
        pipeline.operator,
        pipeline.watermark,
        partitions=pipeline.partitions,
        fires_per_element=pipeline.fires_per_element,
    )


def _session() -> SparkSession:
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    folder = Path(tempfile.mkdtemp(prefix="strandline-play-"))
    require_machine(folder)
    return start_session("strandline play", log=folder / "spark.log")
