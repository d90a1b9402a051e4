"""Collect every story in a `*.story.yaml` file as a pytest test that fails with the difference."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.errors import StrandlineError
from strandline.plan.stories.play import Outcome, perform
from strandline.plan.stories.story import SUFFIX, Story, read_stories
from strandline.testing.playing import PLAYERS, USUAL_PLAYER, player_named


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--stories-on`, which chooses the player."""
    parser.getgroup("strandline").addoption(
        "--stories-on", choices=[*PLAYERS], default=USUAL_PLAYER, help="the player that runs the stories"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "StoryFile | None":
    """Collect a file of stories like a test module."""
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
        """Report a story that cannot be read in one line, with its place."""
        return _message(excinfo, StrandlineError) or str(super().repr_failure(excinfo))


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
        """Report the difference, without a traceback."""
        return _message(excinfo, StoryNotHeld) or str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        place, _, line = self._story.place.rpartition(":")
        return self.path, int(line) - 1 if place and line.isdigit() else None, f"story: {self._story.name}"


def _message(excinfo: pytest.ExceptionInfo[BaseException], kind: type[BaseException]) -> str | None:
    return str(excinfo.value) if isinstance(excinfo.value, kind) else None
