"""Make the folder of this process's Spark for shuffle files, spilled rows and sockets, which no other user can enter.

A process has one. It holds a lock on it, so that a later process can tell the folders of killed ones and remove them.
"""

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PREFIX: Final = "strandline-spark-"
_LOCAL: Final = "spark.local.dir"
_SOCKETS: Final = "spark.python.unix.domain.socket.dir"
_CHOSEN_BY: Final = ("SPARK_LOCAL_DIRS", "LOCAL_DIRS")
"""Variables that Spark prefers to its setting."""
_LONGEST: Final = 60
"""Characters of a folder whose sockets still have a valid address, which is 103 characters at most."""

_lock: Final = threading.Lock()
_made: list[Path] = []


def private_settings(wanted: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings that make Spark use the private folder, except for those that the user has chosen."""
    is_chosen = _LOCAL in wanted or any(environ.get(name) for name in _CHOSEN_BY)
    if is_chosen and _SOCKETS in wanted:
        return {}
    try:
        folder = str(_private_folder())
    except OSError:
        return {}  # the preflight check says it in the user's words
    local = {} if is_chosen else {_LOCAL: folder}
    return local | ({_SOCKETS: folder} if _SOCKETS not in wanted and len(folder) <= _LONGEST else {})


def _private_folder() -> Path:
    with _lock:
        if not _made or not _made[0].is_dir():
            remove_stale_folders()
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX))  # mode 0700
            fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
            atexit.register(_remove, folder, os.getpid())
            _made[:] = [folder]
        return _made[0]


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked process has the same handlers
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale_folders() -> None:
    """Remove the folders of this user's processes that were killed: nobody holds their lock."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if not is_private(folder):
            continue
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # in use, or on a file system without locks
        finally:
            os.close(handle)


def is_private(folder: Path) -> bool:
    """Whether a path is a folder of this user that no other user can enter. Others can make any other in a temporary
    folder."""
    try:
        about = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
