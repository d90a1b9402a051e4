"""Write files atomically and durably: after a kill or a power cut a file is whole or absent."""

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file durably, replacing an old one. Only its owner can read it, because dead letters may hold secrets."""
    _draft(path, data, 0o600).replace(path)
    sync_folder(path.parent)


def write_once(path: Path, data: bytes, mode: int) -> None:
    """Write a file durably, unless a file of that name exists. The existing file is not touched."""
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
    """Hold an exclusive lock on a file; other threads and processes wait. A killed process releases it."""
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
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
