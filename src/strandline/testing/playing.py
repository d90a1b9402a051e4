"""Finds a player by name and plays stories on it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from strandline.errors import InvalidStory, Unsupported
from strandline.plan.players import Player
from strandline.plan.playing import Outcome, perform
from strandline.plan.story import Story, StoryPipeline, read_stories, to_story
from strandline.reference.player import ReferencePlayer

USUAL_PLAYER: Final = "reference"


def _reference(pipeline: StoryPipeline) -> Player:
    return ReferencePlayer(
        pipeline.step,
        pipeline.watermark,
        partitions=pipeline.partitions,
        fires_per_element=pipeline.fires_per_element,
    )


PLAYERS: Final[Mapping[str, Callable[[StoryPipeline], Player]]] = {"reference": _reference}
"""The players there are, by name; each makes a player for one pipeline."""


def play(story: Story | Mapping[str, Any] | Path | str, on: str = USUAL_PLAYER) -> Outcome:
    """Plays one story: a value, a mapping built like the YAML, or the path of a file that holds one."""
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
    """Plays every story of a file."""
    player = player_named(on)
    return [perform(story, player) for story in read_stories(path)]


def player_named(name: str) -> Callable[[StoryPipeline], Player]:
    """What makes a player for a pipeline."""
    if name not in PLAYERS:
        raise Unsupported(f"there is no player {name!r}", hint=f"play on {' or '.join(PLAYERS)}")
    return PLAYERS[name]
