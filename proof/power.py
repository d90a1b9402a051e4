"""Simulate a power cut: keep only files whose bytes and names were synced.

While active, `os.fsync` only records what was synced. `cut` then removes the rest: a name whose folder was not synced
is gone, and an unsynced file is empty.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

Content = tuple[int, int]
"""Inode and modification time, since inode numbers are reused."""


class Power:
    """Files below some folders, and which of them are durable."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = [root.resolve() for root in roots]
        self._contents: set[Content] = set()
        self._names: dict[str, int] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        with patch("os.fsync", self._synced):
            yield

    def _synced(self, handle: int) -> None:
        facts = os.fstat(handle)
        if not stat.S_ISDIR(facts.st_mode):
            self._contents.add((facts.st_ino, facts.st_mtime_ns))
            return
        folder = Path(f"/proc/self/fd/{handle}").readlink()
        self._names |= {entry.path: entry.inode() for entry in os.scandir(folder)}

    def flush(self) -> None:
        """Mark all as durable, as after enough time."""
        for path in self._files():
            facts = path.stat()
            self._contents.add((facts.st_ino, facts.st_mtime_ns))
            self._names[str(path)] = facts.st_ino

    def cut(self) -> None:
        for path in self._files():
            facts = path.stat()
            if self._names.get(str(path)) != facts.st_ino:
                path.unlink()
            elif (facts.st_ino, facts.st_mtime_ns) not in self._contents:
                os.truncate(path, 0)
        self.flush()

    def _files(self) -> list[Path]:
        return [path for root in self._roots for path in root.rglob("*") if path.is_file()]
