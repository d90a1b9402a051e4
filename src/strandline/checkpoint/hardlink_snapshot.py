"""A checkpoint held still: links to its files, so that a job that goes on cannot clean away what is being read.

Spark writes every file of a checkpoint once and under its last name, and later deletes it; a link to it stays. So a
folder of links, made in a moment, is the checkpoint as it was, and neither stops the job nor asks anything of it.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from strandline.checkpoint.job_folder import BACKFILL, Checkpoint
from strandline.errors import StateError

_HELD: Final = ".held-"
_FIRST: Final = ("commits", "offsets", "sources")
"""What says how far the job is comes first: the state of a batch is there before its commit is."""


@contextlib.contextmanager
def held(home: Checkpoint) -> Iterator[Checkpoint]:
    """The checkpoint as it is now, for as long as the block lasts."""
    if not (home.spark / "commits").is_dir():
        raise StateError(f"there is no batch to read in {home.folder}", hint="run the job first, and name its folder")
    _sweep(home.folder)
    place = home.folder / f"{_HELD}{os.getpid()}-{uuid.uuid4().hex[:8]}"
    place.mkdir(mode=0o700)
    try:
        names = [each.name for each in home.spark.iterdir() if each.name not in _FIRST]
        for name in (*_FIRST, *names):
            _link(home.spark / name, place / "spark" / name)
        for about in ("strandline.json", "notes.json", BACKFILL):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy2(home.folder / about, place / about)
        yield Checkpoint(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _link(was: Path, to: Path) -> None:
    """All of a folder; what vanishes meanwhile is a draft, or older than anything that is kept."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not was.is_dir():
            to.parent.mkdir(parents=True, exist_ok=True)
            os.link(was, to)
            return
        to.mkdir(parents=True, exist_ok=True)
        for each in sorted(was.iterdir()):
            _link(each, to / each.name)


def _sweep(folder: Path) -> None:
    """What processes that were killed have left."""
    for left in folder.glob(f"{_HELD}*"):
        process = left.name.removeprefix(_HELD).partition("-")[0]
        if process.isdigit() and not _lives(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
