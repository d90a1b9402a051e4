"""Stories whose keys may be spread, played so: whatever is told, is told as the reference tells it."""

from collections import Counter
from pathlib import Path

import pytest

from strandline.plan.salting import why_not
from strandline.plan.stories.play import Outcome, perform
from strandline.plan.stories.player_protocol import Player
from strandline.plan.stories.story import StoryPipeline, read_stories
from strandline.testing.playing import PLAYERS
from tests.kernel.salted import SaltedPlayer

pytestmark = pytest.mark.slow

AT_THE_END = "a window that would end after the end of time ends there"
"""The bounds of a pane are times, and the end of time is none; no column of Spark's reaches so far."""
FOLDER = Path(__file__).resolve().parent


def salted(pipeline: StoryPipeline) -> Player:
    return SaltedPlayer(
        pipeline.step, pipeline.watermark, partitions=pipeline.partitions, fires_per_element=pipeline.fires_per_element
    )


def told(outcome: Outcome) -> Counter[str]:
    """All panes, late elements and dead letters of a story."""
    said = outcome.outputs
    dead = [(str(each.reason), each.columns) for each in said.dead]
    return Counter(map(repr, (*said.panes, *said.late, *dead)))


def test_stories_are_told_alike_when_their_keys_are_spread() -> None:
    stories = [story for file in sorted(FOLDER.rglob("*.story.yaml")) for story in read_stories(file)]
    fitting = [each for each in stories if each.refusal is None and why_not(each.pipeline.step) is None]
    differing = [
        story.name for story in fitting if told(perform(story, salted)) != told(perform(story, PLAYERS["reference"]))
    ]
    assert differing == [AT_THE_END]
    assert len(fitting) > 100
