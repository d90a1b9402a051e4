"""Play stories and print each failing step with the expected and the actual panes: `strandline play`."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from strandline.cli.terminal import safe_console, say, say_lines
from strandline.errors import InvalidStory, StrandlineError
from strandline.plan.stories.play import Outcome
from strandline.plan.stories.story import SUFFIX, Story, read_stories
from strandline.testing.playing import play_all, player_named

HELD, NOT_HELD, UNREADABLE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Played:
    """The outcomes of one file's stories, or the reason it could not be read."""

    file: Path
    outcomes: tuple[Outcome, ...] = ()
    problem: StrandlineError | None = None


def run(files: Sequence[Path], on: str, *, as_json: bool) -> int:
    """Play every story of these files and folders; return the exit code."""
    player_named(on)
    played = _played([_read(file) for file in stories_in(files)], on)
    if as_json:
        _print_json(played, on)
    elif sys.stdout.isatty():
        _print_colored(played)
    else:
        _print_lines(played)
    if any(each.problem for each in played):
        return UNREADABLE
    return HELD if all(outcome.ok for each in played for outcome in each.outcomes) else NOT_HELD


def stories_in(places: Sequence[Path]) -> Iterator[Path]:
    """Yield the files themselves, and every `*.story.yaml` below a folder."""
    for place in places:
        if not place.is_dir():
            yield place
            continue
        found = sorted(place.rglob(f"*{SUFFIX}"))
        if not found:
            raise InvalidStory(f"{place}: no story in this folder", hint=f"name story files *{SUFFIX}")
        yield from found


@dataclass(frozen=True, slots=True)
class Read:
    """The stories of one file, or the reason it could not be read."""

    file: Path
    stories: tuple[Story, ...] = ()
    problem: StrandlineError | None = None


def _read(file: Path) -> Read:
    try:
        return Read(file, tuple(read_stories(file)))
    except StrandlineError as problem:
        return Read(file, problem=problem)


def _played(files: Sequence[Read], on: str) -> list[Played]:
    """Play the stories of all files together, and group the outcomes by file."""
    outcomes = iter(play_all([story for each in files for story in each.stories], on))
    return [Played(each.file, tuple(islice(outcomes, len(each.stories))), each.problem) for each in files]


def summary(played: Sequence[Played]) -> str:
    """Summarize all outcomes in one line."""
    outcomes = [outcome for each in played for outcome in each.outcomes]
    wrong = sum(not outcome.ok for outcome in outcomes)
    unreadable = sum(each.problem is not None for each in played)
    stories = "1 story" if len(outcomes) == 1 else f"{len(outcomes)} stories"
    text = f"{wrong} of {stories} did not hold" if wrong else f"{stories} held"
    return f"{text}, {unreadable} unreadable" if unreadable else text


def _print_lines(played: Sequence[Played]) -> None:
    for each in played:
        if each.problem:
            say_lines(f"unreadable: {each.problem}")
        for outcome in each.outcomes:
            if not outcome.ok:
                say_lines(f"{outcome}\n")
    say(summary(played))


def _print_colored(played: Sequence[Played]) -> None:
    from rich.text import Text

    console = safe_console(highlight=False, soft_wrap=True)
    colours = {"- ": "green", "+ ": "red"}
    for each in played:
        if each.problem:
            console.print(Text.assemble(("unreadable: ", "bold red"), str(each.problem)))
        for outcome in each.outcomes:
            if outcome.ok:
                continue
            for line in str(outcome).splitlines():
                console.print(Text(line, colours.get(line.strip()[:2], "")))
            console.print()
    fine = all(not each.problem and all(outcome.ok for outcome in each.outcomes) for each in played)
    console.print(Text(summary(played), "bold green" if fine else "bold red"))


def _print_json(played: Sequence[Played], on: str) -> None:
    stories = [_facts(each.file, outcome) for each in played for outcome in each.outcomes]
    unreadable = [{"file": str(each.file), "problem": str(each.problem)} for each in played if each.problem]
    print(json.dumps({"on": on, "stories": stories, "unreadable": unreadable}, indent=2))


def _facts(file: Path, outcome: Outcome) -> dict[str, Any]:
    failures = [
        {"step": failure.step, "place": failure.place, **asdict(failure.difference)} for failure in outcome.failures
    ]
    return {"story": outcome.story.name, "file": str(file), "ok": outcome.ok, "failures": failures}
