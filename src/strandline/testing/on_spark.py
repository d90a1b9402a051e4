"""Play stories on Spark: all of them in one query, in the active session or in a new one."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from strandline.errors import PlanError
from strandline.plan.stages import Stages
from strandline.plan.stories.play import Outcome, perform
from strandline.plan.stories.player_protocol import Player
from strandline.plan.stories.story import Story
from strandline.plan.stories.story_pipeline import StoryPipeline
from strandline.spark.launch.preflight import require_machine
from strandline.spark.launch.session import start_session
from strandline.spark.story_player import Carrier, SparkPlayer


def play_together(stories: Sequence[Story]) -> list[Outcome]:
    """Play stories in lockstep; stories that are invalid when read never reach Spark.

    Stories with as many levels of operators share a query, so that few pass the operators of the deepest.
    """
    outcomes = {number: perform(story, play_alone) for number, story in enumerate(stories) if story.refusal is not None}
    played = [(number, story) for number, story in enumerate(stories) if story.refusal is None]
    stages = {number: _stages(story.pipeline) for number, story in played}
    refused = {number: each for number, each in stages.items() if isinstance(each, PlanError)}
    outcomes |= {number: perform(stories[number], _refusing(error)) for number, error in refused.items()}
    levels = {number: len(each.levels) for number, each in stages.items() if isinstance(each, Stages)}
    for level in sorted({*levels.values()}):
        together = {number: stories[number] for number, many in levels.items() if many == level}
        outcomes |= _in_one_query(together)
    return [outcomes[number] for number in range(len(stories))]


def _in_one_query(stories: Mapping[int, Story]) -> dict[int, Outcome]:
    carrier = Carrier(_session(), {number: story.pipeline.stages for number, story in stories.items()})

    def outcome(number: int, story: Story) -> Outcome:
        return perform(story, lambda pipeline: SparkPlayer(carrier, number, pipeline))

    # Each player waits for the others, so each needs a thread.
    with ThreadPoolExecutor(len(stories)) as threads:
        return dict(zip(stories, threads.map(outcome, stories.keys(), stories.values()), strict=True))


def _stages(pipeline: StoryPipeline) -> Stages | PlanError:
    """Return the stages of a pipeline, or the reason why a rule refuses it."""
    try:
        return pipeline.stages
    except PlanError as error:
        return error


def _refusing(error: PlanError) -> Callable[[StoryPipeline], Player]:
    def refuse(_: StoryPipeline) -> Player:
        raise error

    return refuse


def play_alone(pipeline: StoryPipeline) -> Player:
    """Return a player for one pipeline, in a query of its own."""
    return SparkPlayer(Carrier(_session(), {0: pipeline.stages}), 0, pipeline)


def _session() -> SparkSession:
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    folder = Path(tempfile.mkdtemp(prefix="strandline-play-"))
    require_machine(folder)
    return start_session("strandline play", log=folder / "spark.log")
