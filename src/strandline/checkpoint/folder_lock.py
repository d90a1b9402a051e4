"""Lock a job's folder: shared by running jobs, which sinks fence, and exclusive for a repair."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from strandline.errors import StateError

_TRIES: Final = 10
_PAUSE: Final = 0.1


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the exclusive lock: no other repair and no job runs in the folder."""
    handle = _locked(folder, fcntl.LOCK_EX)
    if handle is None:
        raise StateError(f"a job runs in {folder}", hint="stop it first, then repair")
    try:
        yield
    finally:
        os.close(handle)


def is_running(folder: Path) -> bool:
    """Whether a job on this machine runs in a folder."""
    handle = _locked(folder, fcntl.LOCK_EX)
    if handle is None:
        return True
    os.close(handle)
    return False


def share(folder: Path) -> int:
    """Take the shared lock of a running job; it holds while the returned handle is open."""
    for _ in range(_TRIES):
        handle = _locked(folder, fcntl.LOCK_SH)
        if handle is not None:
            return handle
        time.sleep(_PAUSE)  # a check holds the lock for a moment only
    raise StateError(f"{folder} is being repaired", hint="wait until that has ended")


def _locked(folder: Path, kind: int) -> int | None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        return handle  # a file system without locks
    return handle
