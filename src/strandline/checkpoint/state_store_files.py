"""The files of a state store, looked at without Spark: which versions could be loaded, and what is in the way.

    state/<operator>/<partition>/
      <n>.changelog    what version n changed
      <n>.zip          a snapshot of version n; the large files that it needs are in SSTs/

Version n is what batch n begins with. It is loaded from the newest snapshot at or below n and every changelog after it;
version 0 is empty.
"""

import json
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from strandline.checkpoint.findings import Problem
from strandline.checkpoint.hadoop_checksums import Sums, judge_sums

_CHANGES: Final = re.compile(r"(\d+)\.changelog")
_SNAPSHOT: Final = re.compile(r"(\d+)\.zip")
_OTHERS: Final = re.compile(r"\d+_[\w-]+\.(changelog|zip)")
"""Files of checkpoint format 2 name the attempt that wrote them; which of them count is known to Spark alone."""
_FRAME: Final = struct.Struct("<8sBII4x")
_LZ4: Final = b"LZ4Block"


@dataclass(frozen=True, slots=True)
class Flaw:
    """A file in the way."""

    path: Path
    problem: Problem
    because: str = ""
    part: Path | None = None
    """A file that it needs, and that is damaged itself."""

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.path,) if self.part is None else (self.path, self.part)


@dataclass(frozen=True, slots=True)
class Store:
    """One partition of one operator's state: by version, what is wrong with each file, or None."""

    folder: Path
    changelogs: Mapping[int, Flaw | None]
    snapshots: Mapping[int, Flaw | None]
    known: bool = True
    """Whether its versions can be told from the names of its files."""

    def in_the_way(self, version: int, *, pass_over: bool = False) -> list[Flaw]:
        """What keeps a version from being loaded; if torn snapshots are passed over, what still does."""
        if not self.known:
            return []
        usable = [at for at, flaw in self.snapshots.items() if at <= version and not (pass_over and flaw)]
        start = max(usable, default=0)
        first = self.snapshots.get(start)
        found = [] if first is None else [first]
        for number in range(start + 1, version + 1):
            flaw = self.changelogs.get(number, self._missing(number))
            if flaw is not None:
                found.append(flaw)
            if flaw is not None and flaw.problem is Problem.MISSING:
                break  # the first that is missing says enough
        return found

    @property
    def flaws(self) -> list[Flaw]:
        return [flaw for flaw in (*self.changelogs.values(), *self.snapshots.values()) if flaw is not None]

    def _missing(self, number: int) -> Flaw:
        if not self.folder.is_dir():
            return Flaw(self.folder, Problem.MISSING)
        return Flaw(self.folder / f"{number}.changelog", Problem.MISSING)


def look_at_store(folder: Path, *, deep: bool) -> Store:
    """Every file of a partition; whether all bytes are read, or only how files begin and end."""
    names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    changes = {int(found[1]): folder / name for name in names if (found := _CHANGES.fullmatch(name))}
    snapshots = {int(found[1]): folder / name for name in names if (found := _SNAPSHOT.fullmatch(name))}
    return Store(
        folder,
        {number: _changelog(path, deep=deep) for number, path in changes.items()},
        {number: _snapshot(path, deep=deep) for number, path in snapshots.items()},
        known=not any(_OTHERS.fullmatch(name) for name in names),
    )


def _changelog(path: Path, *, deep: bool) -> Flaw | None:
    if not path.stat().st_size:
        return Flaw(path, Problem.EMPTY)
    if not _ends_well(path):
        return Flaw(path, Problem.TORN, "its end is missing")
    if judge_sums(path, deep=deep) is Sums.DIFFER:
        return Flaw(path, Problem.TORN, "its checksums do not fit")
    return None


def _ends_well(path: Path) -> bool:
    """Whether frames of LZ4 follow each other up to an end mark; another codec is left to the checksums."""
    size, at = path.stat().st_size, 0
    with path.open("rb") as file:
        while head := file.read(_FRAME.size):
            if len(head) < _FRAME.size or not head.startswith(_LZ4):
                return at == 0 and not head.startswith(_LZ4[: len(head)])
            _, _, packed, plain = _FRAME.unpack(head)
            at += _FRAME.size + packed
            if not packed and not plain:
                return bool(at == size)
            file.seek(at)
    return False


def _snapshot(path: Path, *, deep: bool) -> Flaw | None:
    if not path.stat().st_size:
        return Flaw(path, Problem.EMPTY)
    if judge_sums(path, deep=deep) is Sums.DIFFER:
        return Flaw(path, Problem.TORN, "its checksums do not fit")
    try:
        with zipfile.ZipFile(path) as archive:
            if deep and archive.testzip() is not None:
                return Flaw(path, Problem.TORN, "a part of it is damaged")
            facts: dict[str, Any] = json.loads(archive.read("metadata").partition(b"\n")[2])
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as problem:
        return Flaw(path, Problem.TORN, str(problem))
    return next((flaw for each in facts.get("sstFiles", []) if (flaw := _table(path, each, deep=deep))), None)


def _table(snapshot: Path, told: Mapping[str, Any], *, deep: bool) -> Flaw | None:
    """A large file that a snapshot needs; without it, the snapshot is as good as torn."""
    path = snapshot.parent / "SSTs" / told["dfsSstFileName"]
    because = f"it needs {path.parent.name}/{path.name}, which is"
    if not path.exists():
        return Flaw(snapshot, Problem.TORN, f"{because} missing")
    if path.stat().st_size != told["sizeBytes"] or judge_sums(path, deep=deep) is Sums.DIFFER:
        return Flaw(snapshot, Problem.TORN, f"{because} torn", path)
    return None
