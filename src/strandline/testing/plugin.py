"""The pytest plug-in: every story in a `*.story.yaml` file is a test, and its failure is the difference."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.errors import StrandlineError
from strandline.plan.stories.play import Outcome, perform
from strandline.plan.stories.story import SUFFIX, Story, read_stories
from strandline.testing.playing import PLAYERS, USUAL_PLAYER, player_named


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--stories-on reference` chooses the player."""
    parser.getgroup("strandline").addoption(
        "--stories-on", choices=[*PLAYERS], default=USUAL_PLAYER, help="the player on which stories are played"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "StoryFile | None":
    """A file of stories is collected like a module of tests."""
    return StoryFile.from_parent(parent, path=file_path) if file_path.name.endswith(SUFFIX) else None


class StoryFile(pytest.File):
    """A file of stories, one test for each."""

    def collect(self) -> Iterator["StoryItem"]:
        names = set[str]()
        for number, story in enumerate(read_stories(self.path), 1):
            name = story.name if story.name not in names else f"{story.name} ({number})"
            names.add(name)
            yield StoryItem.from_parent(self, name=name, story=story)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:  # noqa: ARG002
        """A story that cannot be read is told in one line, with its place."""
        return _told(excinfo, StrandlineError) or str(super().repr_failure(excinfo))


class StoryNotHeld(Exception):
    """A story that did not hold."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))


class StoryItem(pytest.Item):
    """One story as a test."""

    def __init__(self, *, story: Story, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self._story = story

    def runtest(self) -> None:
        outcome = perform(self._story, player_named(self.config.getoption("--stories-on")))
        if not outcome.ok:
            raise StoryNotHeld(outcome)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:  # noqa: ARG002
        """The difference, without a traceback."""
        return _told(excinfo, StoryNotHeld) or str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        place, _, line = self._story.place.rpartition(":")
        return self.path, int(line) - 1 if place and line.isdigit() else None, f"story: {self._story.name}"


def _told(excinfo: pytest.ExceptionInfo[BaseException], kind: type[BaseException]) -> str | None:
    return str(excinfo.value) if isinstance(excinfo.value, kind) else None
