"""Describe damage in a job's folder: the file, the consequence for the job, and the repair."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from strandline.checkpoint.file_copies import Copies
from strandline.checkpoint.hadoop_checksums import Sums, judge_sums


class Problem(StrEnum):
    """The kind of damage."""

    TORN = "torn"
    EMPTY = "empty"
    MISSING = "missing"
    STRAY = "stray"
    """A draft of a file, or checksums without a file."""
    ALIEN = "alien"
    """A file of neither Spark nor Strandline."""


@dataclass(frozen=True, slots=True)
class Move:
    """Move a file and its checksums out of the folder."""

    path: str

    def __str__(self) -> str:
        return f"move {self.path} away"


@dataclass(frozen=True, slots=True)
class Restore:
    """Write a file again from its copy."""

    path: str
    data: bytes

    def __str__(self) -> str:
        return f"write {self.path} again from its copy"


Action = Move | Restore


@dataclass(frozen=True, slots=True)
class Finding:
    """One damaged file: the problem, whether the job can run as it is, and the repair."""

    path: str
    problem: Problem
    what: str
    """A description of the file."""
    means: str
    """The consequence for the job, and why the repair is safe or impossible."""
    goes_on: bool
    acts: tuple[Action, ...] = ()

    @property
    def is_lasting(self) -> bool:
        """Whether it stops the job and cannot be repaired safely."""
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
    """All findings, and the batch that the job continues with."""

    folder: Path
    findings: tuple[Finding, ...]
    planned: int | None = None
    """The last planned batch, by Spark's number."""
    committed: bool = False

    @property
    def goes_on(self) -> bool:
        return all(each.goes_on for each in self.findings)

    @property
    def acts(self) -> tuple[Action, ...]:
        """Return each action once: first the restores, then the moves."""
        every = dict.fromkeys(act for each in self.findings for act in each.acts)
        return tuple(sorted(every, key=lambda act: isinstance(act, Move)))


@dataclass(frozen=True, slots=True)
class Examination:
    """A job's folder under examination, with the copies of its small files."""

    folder: Path
    copies: Copies
    deep: bool = True
    """Whether to read every file; else only what the next start needs, and only the ends of large files."""

    @property
    def spark(self) -> Path:
        return self.folder / "spark"

    def name(self, path: Path) -> str:
        return str(path.relative_to(self.folder))

    def copy(self, path: Path) -> bytes | None:
        return self.copies.held.get(self.name(path))

    def numbers(self, folder: Path, suffix: str = "") -> list[int]:
        """Return the numbers of a log's files, in order."""
        if not folder.is_dir():
            return []
        names = (each.name.removesuffix(suffix) for each in folder.iterdir() if each.name.endswith(suffix))
        return sorted(int(name) for name in names if name.isdigit() and name == str(int(name)))

    def restore(self, path: Path) -> tuple[Action, ...]:
        """Return the action that restores a file from its copy, if there is one."""
        copy = self.copy(path)
        return () if copy is None else (Restore(self.name(path), copy),)

    def move(self, *paths: Path) -> Iterator[Action]:
        return (Move(self.name(path)) for path in paths if path.exists())


def content_problem(data: bytes | None, sums: Sums, *, whole: bool) -> Problem | None:
    """Return the problem of a small file, from its bytes and checksums."""
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
