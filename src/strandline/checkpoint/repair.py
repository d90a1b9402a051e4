"""Repair a job's folder: move damaged files to a folder beside it, and restore files that have a copy.

Nothing is deleted. The folder beside records what was done, also by a repair that was killed. The job's folder is
examined again until no action is left.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.checkpoint.examine import examine
from strandline.checkpoint.findings import Action, Health, Move, Restore
from strandline.checkpoint.folder_lock import exclusive
from strandline.checkpoint.hadoop_checksums import beside, checksums, is_checksum
from strandline.ports.durable_files import sync_folder, write_whole

_ROUNDS: Final = 5
"""One round is enough, unless a repair uncovers other damage."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair: actions, the place of damaged files, and the remaining damage."""

    done: tuple[Action, ...]
    beside: Path | None
    left: Health


def repair(folder: Path) -> Repaired:
    """Repair what can be repaired safely."""
    with exclusive(folder):
        done: list[Action] = []
        place: Path | None = None
        health = examine(folder)
        for _ in range(_ROUNDS):
            if not health.acts:
                break
            place = place or _new_place(folder)
            for act in health.acts:
                _do(folder, place, act)
            done += health.acts
            _record(place, done)
            health = examine(folder)
        return Repaired(tuple(done), place, health)


def _new_place(folder: Path) -> Path:
    """Make a new folder beside the job's."""
    beside_it = folder.with_name(f"{folder.name}.damaged")
    number = 1 + max((int(each.name) for each in beside_it.glob("*") if each.name.isdigit()), default=0)
    place = beside_it / str(number)
    place.mkdir(parents=True, mode=0o700)
    return place


def _do(folder: Path, place: Path, act: Action) -> None:
    path = folder / act.path
    sums = [] if is_checksum(path) else [beside(path)]
    for each in (path, *sums):
        _set_aside(each, place / each.relative_to(folder), stays=isinstance(act, Restore))
    if isinstance(act, Restore):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, act.data)
        if path.is_relative_to(folder / "spark"):
            write_whole(beside(path), checksums(act.data))


def _set_aside(source: Path, target: Path, *, stays: bool) -> None:
    """Move or copy a file to the folder beside. A file that will be restored is copied, so that one always exists."""
    if not source.exists():
        return
    while target.exists():
        target = target.with_name(f"{target.name}.again")
    target.parent.mkdir(parents=True, exist_ok=True)
    if stays:
        shutil.copy2(source, target)
    else:
        shutil.move(source, target)
        sync_folder(source.parent)


def _record(place: Path, done: Sequence[Action]) -> None:
    actions = [{"act": "moved" if isinstance(act, Move) else "restored", "path": act.path} for act in done]
    write_whole(place / "repair.json", (json.dumps(actions, indent=2) + "\n").encode())
