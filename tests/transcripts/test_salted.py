"""Stories whose keys may be spread, played so: whatever is told, is told as the reference tells it."""

from collections import Counter
from pathlib import Path

import pytest

from strandline.model.steps import WindowedStep
from strandline.plan.salting import why_not
from strandline.plan.stories.play import Outcome, perform
from strandline.plan.stories.story import Story, read_stories
from strandline.plan.stories.story_pipeline import KEY
from strandline.testing.playing import PLAYERS
from tests.kernel.salted import salted_player

pytestmark = pytest.mark.slow

AT_THE_END = "a window that would end after the end of time ends there"
"""The bounds of a pane are times, and the end of time is none; no column of Spark's reaches so far."""
FOLDER = Path(__file__).resolve().parent


def may_be_salted(story: Story) -> bool:
    """Tell whether a story plays one windowed step over one input whose keys may be spread."""
    if story.refusal is not None or len(story.pipeline.nodes) != 1 or len(story.pipeline.sources) > 1:
        return False
    operator = story.pipeline.operator
    return isinstance(operator, WindowedStep) and why_not(operator) is None and story.pipeline.nodes[0].keys == (KEY,)


def told(outcome: Outcome) -> Counter[str]:
    """All panes, late elements and dead letters of a story."""
    said = outcome.outputs
    dead = [(str(each.reason), each.columns) for each in said.dead]
    return Counter(map(repr, (*said.panes, *said.late, *dead)))


def test_stories_are_told_alike_when_their_keys_are_spread() -> None:
    stories = [story for file in sorted(FOLDER.rglob("*.story.yaml")) for story in read_stories(file)]
    fitting = [each for each in stories if may_be_salted(each)]
    differing = [
        story.name
        for story in fitting
        if told(perform(story, salted_player)) != told(perform(story, PLAYERS["reference"]))
    ]
    assert differing == [AT_THE_END]
    assert len(fitting) > 100
