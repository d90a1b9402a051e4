"""Who is in a job's folder: jobs share it, since sinks fence them; whoever repairs it is alone."""

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
def alone(folder: Path) -> Iterator[None]:
    """Nobody else mends this folder meanwhile, and no job runs in it."""
    handle = _locked(folder, fcntl.LOCK_EX)
    if handle is None:
        raise StateError(f"a job runs in {folder}", hint="stop it first, then repair")
    try:
        yield
    finally:
        os.close(handle)


def is_running(folder: Path) -> bool:
    """Whether a job of this machine runs in a folder."""
    handle = _locked(folder, fcntl.LOCK_EX)
    if handle is None:
        return True
    os.close(handle)
    return False


def share(folder: Path) -> int:
    """A running job's hold on its folder, for as long as the handle is open. Several may have one: sinks fence them."""
    for _ in range(_TRIES):
        handle = _locked(folder, fcntl.LOCK_SH)
        if handle is not None:
            return handle
        time.sleep(_PAUSE)  # whoever only looks lets go at once
    raise StateError(f"{folder} is being repaired", hint="wait until that has ended")


def _locked(folder: Path, kind: int) -> int | None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        return handle  # a file system without locks: nothing can be known
    return handle
