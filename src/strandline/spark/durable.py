"""A file that is there as a whole or not at all, after a power cut too."""

import os
from pathlib import Path

from strandline.spark.checkpoint import sync_folder


def write_whole(path: Path, data: bytes) -> None:
    """A file with these bytes. Only its owner can read it: it may hold anything."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)
