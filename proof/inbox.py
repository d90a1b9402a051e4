"""Write the input of real jobs: files of numbered events, some late, with one unreadable line each."""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

PER_FILE: Final = 20
KEYS: Final = 4
SECONDS: Final = 4
"""Distance of files in event time."""
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_TARDY: Final = 0.05


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the source's log."""

    event: int
    key: str
    score: int
    at: datetime

    @property
    def line(self) -> str:
        return json.dumps({"event": self.event, "key": self.key, "score": self.score, "at": self.at.isoformat()})


def events_of(seed: int, file: int) -> list[Event]:
    """Generate the events of a file, deterministically."""
    draw = Random(f"{seed} {file}")
    found = []
    for number in range(PER_FILE):
        behind = draw.uniform(30, 90) if draw.random() < _TARDY else draw.uniform(0, 6)
        at = _BEGIN + timedelta(seconds=file * SECONDS, milliseconds=-round(1_000 * behind))
        found.append(Event(file * PER_FILE + number, f"key {draw.randrange(KEYS)}", draw.randrange(1, 100), at))
    return found


def put(folder: Path, seed: int, file: int) -> None:
    """Write a file atomically with a later timestamp than those before it."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [each.line for each in events_of(seed, file)]
    lines.insert(PER_FILE // 2, f"file {file} has a line that is no event")
    draft = folder / f".{file:08}"
    draft.write_text("\n".join(lines) + "\n")
    moment = _BEGIN.timestamp() + file
    os.utime(draft, (moment, moment))
    draft.replace(folder / f"{file:08}.json")
