"""Files that are there as a whole or not at all, whatever is killed and whenever."""

import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """A file with these bytes, also after a power cut. Only its owner can read it: letters may hold anything."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


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
