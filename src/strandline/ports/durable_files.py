"""Files that are there as a whole or not at all, whatever is killed and whenever, also after a power cut."""

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """A file with these bytes, also after a power cut. Only its owner can read it: letters may hold anything."""
    _draft(path, data, 0o600).replace(path)
    sync_folder(path.parent)


def write_once(path: Path, data: bytes, mode: int) -> None:
    """The same, unless a file of that name is there: then that one stays, and is not even touched."""
    draft = _draft(path, data, mode)
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
    except OSError:
        # Not every file system has links.
        if not path.exists():
            draft.replace(path)
    draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def _draft(path: Path, data: bytes, mode: int) -> Path:
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.chmod(mode)
    return draft


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Whoever asks for the same file waits until this one is done, here or in another process; a kill lets go."""
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A name in a folder is durable once the folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
