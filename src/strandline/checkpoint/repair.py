"""A job's folder, mended: what is damaged goes into a folder beside, what has a copy is written again.

Nothing is deleted. Whatever was done, also if it was stopped half-way, can be read in the folder beside; and the folder
is examined again until nothing more can be done.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.checkpoint.examine import examine
from strandline.checkpoint.findings import Act, Health, Move, Restore
from strandline.checkpoint.folder_lock import alone
from strandline.checkpoint.hadoop_checksums import beside, checksums, is_checksum
from strandline.ports.durable_files import sync_folder, write_whole

_ROUNDS: Final = 5
"""One is enough, unless mending lays something bare."""


@dataclass(frozen=True, slots=True)
class Mended:
    """What was done, where damaged files are now, and what is still wrong."""

    done: tuple[Act, ...]
    beside: Path | None
    left: Health


def mend(folder: Path) -> Mended:
    """Does what is provably safe."""
    with alone(folder):
        done: list[Act] = []
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
        return Mended(tuple(done), place, health)


def _new_place(folder: Path) -> Path:
    """A folder beside the job's, another for each repair."""
    beside_it = folder.with_name(f"{folder.name}.damaged")
    number = 1 + max((int(each.name) for each in beside_it.glob("*") if each.name.isdigit()), default=0)
    place = beside_it / str(number)
    place.mkdir(parents=True, mode=0o700)
    return place


def _do(folder: Path, place: Path, act: Act) -> None:
    path = folder / act.path
    sums = [] if is_checksum(path) else [beside(path)]
    for each in (path, *sums):
        _keep(each, place / each.relative_to(folder), stays=isinstance(act, Restore))
    if isinstance(act, Restore):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, act.data)
        if path.is_relative_to(folder / "spark"):
            write_whole(beside(path), checksums(act.data))


def _keep(was: Path, to: Path, *, stays: bool) -> None:
    """A file, beside the job's folder; what is written again stays until then, so that there is always one."""
    if not was.exists():
        return
    while to.exists():
        to = to.with_name(f"{to.name}.again")
    to.parent.mkdir(parents=True, exist_ok=True)
    if stays:
        shutil.copy2(was, to)
    else:
        shutil.move(was, to)
        sync_folder(was.parent)


def _record(place: Path, done: Sequence[Act]) -> None:
    told = [{"act": "moved" if isinstance(act, Move) else "restored", "path": act.path} for act in done]
    write_whole(place / "repair.json", (json.dumps(told, indent=2) + "\n").encode())
