"""Examine the files of a state store without Spark: which versions can be loaded, and which files are damaged.

    state/<operator>/<partition>/
      <n>.changelog    what version n changed
      <n>.zip          a snapshot of version n; the large files that it needs are in SSTs/

Batch n starts with version n. It is loaded from the newest snapshot at or below n and all later changelogs. Version 0
is empty.
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
"""Files of checkpoint format 2 have the id of their writer. Only Spark knows which of them are valid."""
_FRAME: Final = struct.Struct("<8sBII4x")
_LZ4: Final = b"LZ4Block"


@dataclass(frozen=True, slots=True)
class Flaw:
    """A damaged or missing file."""

    path: Path
    problem: Problem
    because: str = ""
    part: Path | None = None
    """A damaged file that it needs."""

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.path,) if self.part is None else (self.path, self.part)


@dataclass(frozen=True, slots=True)
class Store:
    """One partition of an operator's state: the flaw of each file by version, or None."""

    folder: Path
    changelogs: Mapping[int, Flaw | None]
    snapshots: Mapping[int, Flaw | None]
    known: bool = True
    """Whether file names give the versions."""

    def in_the_way(self, version: int, *, pass_over: bool = False) -> list[Flaw]:
        """Return the flaws that prevent loading a version; `pass_over` ignores torn snapshots."""
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
                break  # one missing file is enough
        return found

    @property
    def flaws(self) -> list[Flaw]:
        return [flaw for flaw in (*self.changelogs.values(), *self.snapshots.values()) if flaw is not None]

    def _missing(self, number: int) -> Flaw:
        if not self.folder.is_dir():
            return Flaw(self.folder, Problem.MISSING)
        return Flaw(self.folder / f"{number}.changelog", Problem.MISSING)


def look_at_store(folder: Path, *, deep: bool) -> Store:
    """Examine every file of a partition; if not `deep`, only the ends of files are read."""
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
    if not _is_complete(path):
        return Flaw(path, Problem.TORN, "its end is missing")
    if judge_sums(path, deep=deep) is Sums.DIFFER:
        return Flaw(path, Problem.TORN, "its checksums do not match")
    return None


def _is_complete(path: Path) -> bool:
    """Whether LZ4 frames follow each other up to the end mark. Other codecs are left to the checksums."""
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
        return Flaw(path, Problem.TORN, "its checksums do not match")
    try:
        with zipfile.ZipFile(path) as archive:
            if deep and archive.testzip() is not None:
                return Flaw(path, Problem.TORN, "a part of it is damaged")
            facts: dict[str, Any] = json.loads(archive.read("metadata").partition(b"\n")[2])
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as problem:
        return Flaw(path, Problem.TORN, str(problem))
    return next((flaw for each in facts.get("sstFiles", []) if (flaw := _sst_flaw(path, each, deep=deep))), None)


def _sst_flaw(snapshot: Path, facts: Mapping[str, Any], *, deep: bool) -> Flaw | None:
    """Check an SST file of a snapshot. Without it the snapshot counts as torn."""
    path = snapshot.parent / "SSTs" / facts["dfsSstFileName"]
    because = f"it needs {path.parent.name}/{path.name}, which is"
    if not path.exists():
        return Flaw(snapshot, Problem.TORN, f"{because} missing")
    if path.stat().st_size != facts["sizeBytes"] or judge_sums(path, deep=deep) is Sums.DIFFER:
        return Flaw(snapshot, Problem.TORN, f"{because} torn", path)
    return None
