"""What was found in a job's folder: each file that is not as it should be, what that means, and what would mend it."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from strandline.checkpoint.file_copies import Copies
from strandline.checkpoint.hadoop_checksums import Sums, judge_sums


class Problem(StrEnum):
    """How a file is not as it should be."""

    TORN = "torn"
    EMPTY = "empty"
    MISSING = "missing"
    STRAY = "stray"
    """A draft, or checksums, of a file that never came to be."""
    ALIEN = "alien"
    """Nothing of Spark's or of ours."""


@dataclass(frozen=True, slots=True)
class Move:
    """Out of the job's way, with its checksums."""

    path: str

    def __str__(self) -> str:
        return f"move {self.path} away"


@dataclass(frozen=True, slots=True)
class Restore:
    """These bytes again, in place of what is there."""

    path: str
    data: bytes

    def __str__(self) -> str:
        return f"write {self.path} again from its copy"


Act = Move | Restore


@dataclass(frozen=True, slots=True)
class Finding:
    """One file: what is wrong with it, whether the job can go on as it is, and what would mend it."""

    path: str
    problem: Problem
    what: str
    """Which file it is, in words."""
    means: str
    """What it means for the job, and why the acts are safe; or why there are none."""
    goes_on: bool
    acts: tuple[Act, ...] = ()

    @property
    def is_lasting(self) -> bool:
        """Whether it stops the job, and nothing that is safe would mend it."""
        return not self.goes_on and not self.acts

    def to_plain(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "problem": self.problem.value,
            "what": self.what,
            "means": self.means,
            "goes_on": self.goes_on,
            "repair": [str(act) for act in self.acts],
        }


@dataclass(frozen=True, slots=True)
class Health:
    """All that was found, and the batch that the job goes on with."""

    folder: Path
    findings: tuple[Finding, ...]
    planned: int | None = None
    """The last batch that Spark has planned, by Spark's count."""
    committed: bool = False

    @property
    def goes_on(self) -> bool:
        return all(each.goes_on for each in self.findings)

    @property
    def acts(self) -> tuple[Act, ...]:
        """Each once: what is written again comes first, then what moves away."""
        every = dict.fromkeys(act for each in self.findings for act in each.acts)
        return tuple(sorted(every, key=lambda act: isinstance(act, Move)))


@dataclass(frozen=True, slots=True)
class Looked:
    """A job's folder under examination, with the copies of its small files."""

    folder: Path
    copies: Copies
    deep: bool = True
    """Whether every file is read, or only what the next start needs, and of large files only how they begin and end."""

    @property
    def spark(self) -> Path:
        return self.folder / "spark"

    def name(self, path: Path) -> str:
        return str(path.relative_to(self.folder))

    def copy(self, path: Path) -> bytes | None:
        return self.copies.held.get(self.name(path))

    def numbers(self, folder: Path, suffix: str = "") -> list[int]:
        """The numbers that files of a log have, in order."""
        if not folder.is_dir():
            return []
        names = (each.name.removesuffix(suffix) for each in folder.iterdir() if each.name.endswith(suffix))
        return sorted(int(name) for name in names if name.isdigit() and name == str(int(name)))

    def restore(self, path: Path) -> tuple[Act, ...]:
        """From its copy, if there is one."""
        copy = self.copy(path)
        return () if copy is None else (Restore(self.name(path), copy),)

    def move(self, *paths: Path) -> Iterator[Act]:
        return (Move(self.name(path)) for path in paths if path.exists())


def content_problem(data: bytes | None, sums: Sums, *, whole: bool) -> Problem | None:
    """What is wrong with the bytes of a small file."""
    if data is None:
        return Problem.MISSING
    if not data:
        return Problem.EMPTY
    return None if whole and sums is not Sums.DIFFER else Problem.TORN


def read_bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def sums_of(path: Path) -> Sums:
    return judge_sums(path) if path.exists() else Sums.ABSENT
