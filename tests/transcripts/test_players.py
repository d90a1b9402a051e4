"""Every story is told alike: the plug-in plays each on the kernel, as a test of its own; the others do so here."""

from pathlib import Path

import pytest

from strandline.plan.stories.play import Outcome
from strandline.plan.stories.story import Story, read_stories
from strandline.testing import play_all

FOLDER = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    return [story for file in sorted(FOLDER.rglob("*.story.yaml")) for story in read_stories(file)]


def broken(outcomes: list[Outcome]) -> str:
    return "\n\n".join(str(outcome) for outcome in outcomes if not outcome.ok)


def test_every_story_holds_on_the_reference(stories: list[Story]) -> None:
    assert broken(play_all(stories, on="reference")) == ""


@pytest.mark.spark
def test_every_story_holds_on_spark(stories: list[Story]) -> None:
    assert broken(play_all(stories, on="spark")) == ""
