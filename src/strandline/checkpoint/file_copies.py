"""Keep copies of the small files that a job cannot do without, in one file of its folder.

    copies.jsonl    one line for each copy: lineage, path, bytes, and a digest of all three

Copied are the identity, the extent of a bounded run, the plan of a backfill, Spark's query id, the schemas of state,
and for each batch its entry in the offset log and in the sources' own logs. The copies of a batch are durable before
a sink gets the batch. So a damaged entry can be restored byte by byte, and an entry without a copy belongs to a batch
that no sink has seen.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from strandline.checkpoint.job_folder import Checkpoint
from strandline.ports.durable_files import sync_folder, write_whole
from strandline.ports.inside_folder import is_inside
from strandline.ports.ledger import Sealed

COPIES: Final = "copies.jsonl"
KEPT: Final = 100
"""Copies kept of a log: as many entries as Spark keeps."""
_MOST: Final = 3 * KEPT
LARGEST: Final = 2**20
"""Bytes of the largest file that is copied. A longer list of files would cost too much."""
OFFSETS: Final = "spark/offsets"


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of one lineage, by path, and whether the whole file could be read."""

    held: Mapping[str, bytes] = field(default_factory=dict)
    lineage: str = ""
    torn: int = 0
    """Damaged lines."""
    ends_torn: bool = False

    @property
    def sealed(self) -> frozenset[int]:
        """Return the batches that may have reached a sink, as far back as copies go."""
        paths = (path.rpartition("/") for path in self.held)
        return frozenset(int(name) for folder, _, name in paths if folder == OFFSETS and name.isdigit())

    def knows(self, batch: int) -> bool:
        """Whether the copies prove that a batch without a copy has reached no sink."""
        return bool(self.held) and not self.ends_torn and max(self.sealed, default=-1) == batch - 1


def read_copies(folder: Path, lineage: str | None = None) -> Copies:
    """Read the copies in a job's folder: of a lineage, or of the last one."""
    try:
        data = (folder / COPIES).read_bytes()
    except FileNotFoundError:
        return Copies()
    lines = [line if line is None or is_inside(folder, line[1]) else None for line in _lines(data)]
    sound = [line for line in lines if line is not None]
    of = lineage or (sound[-1][0] if sound else "")
    held = {path: content for owner, path, content in sound if owner == of}
    return Copies(held, of, len(lines) - len(sound), bool(lines) and lines[-1] is None)


def _lines(data: bytes) -> Iterator[tuple[str, str, bytes] | None]:
    """Parse each line into lineage, path and bytes; None for a damaged one."""
    for line in data.splitlines():
        try:
            facts: dict[str, Any] = json.loads(line)
            content = facts["data"].encode("latin-1")
            found = str(facts["of"]), str(facts["path"]), content
            yield found if _seal(*found) == facts["sha256"] else None
        except (ValueError, KeyError, TypeError, AttributeError):
            yield None


class CopyWriter:
    """Appends to the copies of a running job."""

    def __init__(self, folder: Path, lineage: str) -> None:
        self._folder, self._lineage = folder, lineage
        found = read_copies(folder, lineage)
        self._known = {path: _digest(content) for path, content in found.held.items()}
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._lines = len(found.held) + found.torn

    def add(self, files: Iterable[Path]) -> None:
        """Copy the new and changed files durably."""
        new = b"".join(self._line(path) for path in files)
        if not new:
            return
        place = self._folder / COPIES
        first = not place.exists()
        with place.open("ab") as file:
            # End a line that a power cut has torn, so that the next line stays readable.
            file.write((b"\n" if _lacks_newline(place) else b"") + new)
            file.flush()
            os.fsync(file.fileno())
        if first:
            sync_folder(self._folder)
        self._lines += new.count(b"\n")
        if self._lines > _MOST:
            self._drop_old()

    def _line(self, path: Path) -> bytes:
        name = str(path.relative_to(self._folder))
        try:
            about = path.stat()
            looks = (about.st_mtime_ns, about.st_size, about.st_ino)
            if self._seen.get(name) == looks or about.st_size > LARGEST:
                return b""
            content = path.read_bytes()
        except FileNotFoundError:
            return b""
        self._seen[name] = looks
        if self._known.get(name) == _digest(content):
            return b""
        self._known[name] = _digest(content)
        return copy_line(self._lineage, name, content)

    def _drop_old(self) -> None:
        held = read_copies(self._folder, self._lineage).held
        kept = {path: held[path] for path in _newest(held)}
        write_whole(self._folder / COPIES, b"".join(copy_line(self._lineage, *each) for each in kept.items()))
        self._known = {path: digest for path, digest in self._known.items() if path in kept}
        self._seen = {path: looks for path, looks in self._seen.items() if path in kept}
        self._lines = len(kept)


@dataclass(frozen=True, slots=True)
class CopyingCheckpoint(Checkpoint):
    """A checkpoint that also copies each range that it makes durable."""

    copies: CopyWriter

    def seal(self, batch: int) -> Sealed:
        sealed = Checkpoint.seal(self, batch)
        self.copies.add(self.to_copy(batch))
        return sealed


def with_copies(home: Checkpoint, lineage: str) -> CopyingCheckpoint:
    """Return a checkpoint that copies from now on, so that a batch without a copy is in no sink."""
    copies = CopyWriter(home.folder, lineage)
    if home.newest() is None:
        copies.add(home.to_copy(None))
    return CopyingCheckpoint(home.folder, copies)


def copy_line(lineage: str, path: str, content: bytes) -> bytes:
    """Return a copy as a line. Bytes are written as Latin-1, so that texts stay readable."""
    facts = {"of": lineage, "path": path, "data": content.decode("latin-1"), "sha256": _seal(lineage, path, content)}
    return json.dumps(facts).encode() + b"\n"


def _seal(lineage: str, path: str, content: bytes) -> str:
    return _digest(b"\0".join([lineage.encode(), path.encode(), content]))


def _newest(held: Mapping[str, bytes]) -> list[str]:
    """Return the newest copies of each folder, in their order."""
    by_folder: dict[str, list[str]] = {}
    for path in held:
        by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    kept = {path for paths in by_folder.values() for path in paths[-KEPT:]}
    return [path for path in held if path in kept]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _lacks_newline(place: Path) -> bool:
    """Whether the last line has no newline."""
    with place.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
