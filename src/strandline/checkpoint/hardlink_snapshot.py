"""Take a snapshot of a checkpoint with hard links, so that a running job cannot delete files that are being read.

Spark writes every file of a checkpoint once and later deletes it; a hard link keeps it. So a folder of links is the
checkpoint at one moment, made without stopping the job.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from strandline.checkpoint.clock_floors import CLOCK
from strandline.checkpoint.job_folder import BACKFILL, Checkpoint
from strandline.checkpoint.log_identities import LOGS
from strandline.errors import StateError

_HELD: Final = ".held-"
_FIRST: Final = ("commits", "offsets", "sources")
"""Link the logs first: the state of a batch exists before its commit does."""


@contextlib.contextmanager
def snapshot(home: Checkpoint) -> Iterator[Checkpoint]:
    """Return a snapshot of the checkpoint that exists while the block runs."""
    if not (home.spark / "commits").is_dir():
        raise StateError(f"there is no batch to read in {home.folder}", hint="run the job first, and name its folder")
    _remove_stale(home.folder)
    place = home.folder / f"{_HELD}{os.getpid()}-{uuid.uuid4().hex[:8]}"
    place.mkdir(mode=0o700)
    try:
        names = [each.name for each in home.spark.iterdir() if each.name not in _FIRST]
        for name in (*_FIRST, *names):
            _link(home.spark / name, place / "spark" / name)
        for about in ("strandline.json", "notes.json", BACKFILL, CLOCK, LOGS):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy2(home.folder / about, place / about)
        yield Checkpoint(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


"""The old name, until savepoints/state_reader.py imports the new one."""


def _link(source: Path, target: Path) -> None:
    """Link a folder. A file that vanishes meanwhile is a draft, or older than any retained batch."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not source.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(source, target)
            return
        target.mkdir(parents=True, exist_ok=True)
        for each in sorted(source.iterdir()):
            _link(each, target / each.name)


def _remove_stale(folder: Path) -> None:
    """Remove snapshots of killed processes."""
    for left in folder.glob(f"{_HELD}*"):
        process = left.name.removeprefix(_HELD).partition("-")[0]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
