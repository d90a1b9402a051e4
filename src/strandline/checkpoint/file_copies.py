"""Copies of what a job cannot do without: small files of its folder, each kept a second time in one file beside them.

    copies.jsonl    a line a copy: the lineage it is of, the path, the bytes, and a digest of all three

Kept are the identity, what was looked up when a bounded run or a backfill began, Spark's id of the query, the schemas
of its state, and for each batch the entry of the offset log with what its sources wrote down. A batch's copies are
durable before a sink gets the batch: so a damaged entry can be written again, byte by byte; and one that has no copy
here belongs to a batch that no sink has seen.
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
from strandline.ports.ledger import Sealed

COPIES: Final = "copies.jsonl"
KEPT: Final = 100
"""So many entries of a log: as far back as Spark keeps its own."""
_MOST: Final = 3 * KEPT
LARGEST: Final = 2**20
"""A list of more files than this holds is not copied: it would cost more than it is worth."""
OFFSETS: Final = "spark/offsets"


@dataclass(frozen=True, slots=True)
class Copies:
    """What is kept of one lineage, by path; and whether all of the file could be read."""

    held: Mapping[str, bytes] = field(default_factory=dict)
    lineage: str = ""
    torn: int = 0
    """Lines that are not what they were."""
    ends_torn: bool = False

    @property
    def sealed(self) -> frozenset[int]:
        """The batches that may have reached a sink, as far back as copies are kept."""
        paths = (path.rpartition("/") for path in self.held)
        return frozenset(int(name) for folder, _, name in paths if folder == OFFSETS and name.isdigit())

    def knows(self, batch: int) -> bool:
        """Whether it can be told from here that a batch without a copy has reached no sink."""
        return bool(self.held) and not self.ends_torn and max(self.sealed, default=-1) == batch - 1


def read_copies(folder: Path, lineage: str | None = None) -> Copies:
    """The copies in a job's folder; those of its last lineage, if none is named."""
    try:
        data = (folder / COPIES).read_bytes()
    except FileNotFoundError:
        return Copies()
    lines = list(_lines(data))
    sound = [line for line in lines if line is not None]
    of = lineage or (sound[-1][0] if sound else "")
    held = {path: content for whose, path, content in sound if whose == of}
    return Copies(held, of, len(lines) - len(sound), bool(lines) and lines[-1] is None)


def _lines(data: bytes) -> Iterator[tuple[str, str, bytes] | None]:
    """Every line as lineage, path and bytes; None for one that is damaged."""
    for line in data.splitlines():
        try:
            told: dict[str, Any] = json.loads(line)
            content = told["data"].encode("latin-1")
            found = str(told["of"]), str(told["path"]), content
            yield found if _seal(*found) == told["sha256"] else None
        except (ValueError, KeyError, TypeError, AttributeError):
            yield None


class Keeper:
    """Adds to the copies of a running job."""

    def __init__(self, folder: Path, lineage: str) -> None:
        self._folder, self._lineage = folder, lineage
        found = read_copies(folder, lineage)
        self._known = {path: _digest(content) for path, content in found.held.items()}
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._lines = len(found.held) + found.torn

    def keep(self, files: Iterable[Path]) -> None:
        """Durable copies of those that are new or changed."""
        new = b"".join(self._line(path) for path in files)
        if not new:
            return
        place = self._folder / COPIES
        first = not place.exists()
        with place.open("ab") as file:
            # A line that a power cut has torn must not take the next one with it.
            file.write((b"\n" if _is_open(place) else b"") + new)
            file.flush()
            os.fsync(file.fileno())
        if first:
            sync_folder(self._folder)
        self._lines += new.count(b"\n")
        if self._lines > _MOST:
            self._forget_old()

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
        return written(self._lineage, name, content)

    def _forget_old(self) -> None:
        held = read_copies(self._folder, self._lineage).held
        kept = {path: held[path] for path in _newest(held)}
        write_whole(self._folder / COPIES, b"".join(written(self._lineage, *each) for each in kept.items()))
        self._known = {path: digest for path, digest in self._known.items() if path in kept}
        self._seen = {path: looks for path, looks in self._seen.items() if path in kept}
        self._lines = len(kept)


@dataclass(frozen=True, slots=True)
class Copied(Checkpoint):
    """A checkpoint that keeps copies of each range that it makes durable."""

    keeper: Keeper

    def seal(self, batch: int) -> Sealed:
        sealed = Checkpoint.seal(self, batch)
        self.keeper.keep(self.to_copy(batch))
        return sealed


def copied(home: Checkpoint, lineage: str) -> Copied:
    """A job's checkpoint, with copies from here on: a batch that has none is then known to be in no sink."""
    keeper = Keeper(home.folder, lineage)
    if home.newest() is None:
        keeper.keep(home.to_copy(None))
    return Copied(home.folder, keeper)


def written(lineage: str, path: str, content: bytes) -> bytes:
    """A copy as a line. Every byte is a letter of Latin-1, so that texts can be read."""
    told = {"of": lineage, "path": path, "data": content.decode("latin-1"), "sha256": _seal(lineage, path, content)}
    return json.dumps(told).encode() + b"\n"


def _seal(lineage: str, path: str, content: bytes) -> str:
    return _digest(b"\0".join([lineage.encode(), path.encode(), content]))


def _newest(held: Mapping[str, bytes]) -> list[str]:
    """The last of each folder, in the order in which they came."""
    by_folder: dict[str, list[str]] = {}
    for path in held:
        by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    kept = {path for paths in by_folder.values() for path in paths[-KEPT:]}
    return [path for path in held if path in kept]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_open(place: Path) -> bool:
    """Whether the last line has no end."""
    with place.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
