"""Find a player by name and play stories on it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from strandline.errors import InvalidStory, Unsupported
from strandline.plan.stories.play import Outcome, perform
from strandline.plan.stories.player_protocol import Player
from strandline.plan.stories.reference_graph import graph_of
from strandline.plan.stories.story import Story, read_stories, to_story
from strandline.plan.stories.story_pipeline import StoryPipeline
from strandline.reference.graph_player import GraphPlayer

USUAL_PLAYER: Final = "kernel"
SPARK: Final = "spark"


def _reference(pipeline: StoryPipeline) -> Player:
    return GraphPlayer(graph_of(pipeline), fires_per_element=pipeline.fires_per_element)


def _kernel(pipeline: StoryPipeline) -> Player:
    from strandline.execution.story_player import KernelPlayer  # loads Polars only if this player is used

    return KernelPlayer(pipeline)


def _spark(pipeline: StoryPipeline) -> Player:
    from strandline.testing.on_spark import play_alone  # loads Spark only if this player is used

    return play_alone(pipeline)


PLAYERS: Final[Mapping[str, Callable[[StoryPipeline], Player]]] = {
    "reference": _reference,
    "kernel": _kernel,
    SPARK: _spark,
}
"""All players by name; each function makes a player for one pipeline."""


def play(story: Story | Mapping[str, Any] | Path | str, on: str = USUAL_PLAYER) -> Outcome:
    """Play one story: a value, a mapping like the YAML, or the path of a file with one story."""
    match story:
        case Story():
            return perform(story, player_named(on))
        case Mapping():
            return perform(to_story(story), player_named(on))
    outcomes = play_file(story, on)
    if len(outcomes) > 1:
        raise InvalidStory(f"{story}: {len(outcomes)} stories in it, expected one", hint="use play_file for several")
    return outcomes[0]


def play_file(path: Path | str, on: str = USUAL_PLAYER) -> list[Outcome]:
    """Play every story of a file."""
    return play_all(read_stories(path), on)


def play_all(stories: Sequence[Story], on: str = USUAL_PLAYER) -> list[Outcome]:
    """Play stories; on Spark all of them in one query, since starting a query takes most of the time."""
    player = player_named(on)
    if on == SPARK:
        from strandline.testing.on_spark import play_together

        return play_together(stories)
    return [perform(story, player) for story in stories]


def player_named(name: str) -> Callable[[StoryPipeline], Player]:
    """Return the function that makes a player for a pipeline."""
    if name not in PLAYERS:
        raise Unsupported(f"there is no player {name!r}", hint=f"play on {' or '.join(PLAYERS)}")
    return PLAYERS[name]
