"""The log of a folder: what it holds, told by numbered records, each there as a whole or not at all.

    totals/
      _log/00000000000000000042.json   one record: a driver's claim, a batch, a mark, rows, or the whole state anew
      panes/  late/  dead/             files; one that no record names is not there

A record is written aside and made durable, then linked under the next number, which only one writer can have. So each
stands on all before it: who finds the number taken reads what the other said, and judges again. A record of the whole
state makes those before it needless, and they may be deleted. Should one be linked among those, by a writer that slept
all the while, it counts for nobody: readers begin with the newest whole state, and the writer sees that it is behind.
"""

import errno
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from strandline.errors import SinkError, SinkUnavailable, StateError
from strandline.formats.row_files import joined
from strandline.ports.durable_files import sync_folder
from strandline.ports.ledger import Recorded

VERSION: Final = 1
CLAIM, BATCH, MARK, ROWS, STATE = "claim", "batch", "mark", "rows", "state"
KEPT: Final = 1_000
"""So far back are the entries of a job kept, much further than Spark can go."""

_RECORD: Final = re.compile(r"(\d{20})\.json")
_PATH: Final = re.compile(r"(panes|late|dead)/[\w-]+\.(parquet|jsonl|csv)")
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class File:
    """A file of the folder that counts."""

    path: str
    part: str
    rows: int
    bytes: int

    def __post_init__(self) -> None:
        if _PATH.fullmatch(self.path) is None or not self.path.startswith(f"{self.part}/"):
            raise StateError(f"the log names {self.path!r}, which is no file of its folder")


@dataclass(slots=True)
class Held:
    """What a folder holds after a record, folded from those before it."""

    number: int = 0
    told: int = 0
    """The number of the newest record of the whole state."""
    files: dict[str, File] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    """Files that were replaced, and when, in seconds: somebody may still be reading them."""
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    """By part, the columns of its files, each with its type."""
    now: dict[str, Any] | None = None
    """By what the latest answers are found among the panes."""
    epochs: dict[str, int] = field(default_factory=dict)
    ledger: dict[str, dict[int, Recorded]] = field(default_factory=dict)

    def latest(self, lineage: str) -> Recorded | None:
        known = self.ledger.get(lineage)
        return known[max(known)] if known else None

    def take(self, number: int, record: Mapping[str, Any]) -> None:
        """One record more."""
        self.number = number
        if record["kind"] == STATE:
            self.told = number
            self.files, self.gone = {}, dict(record["gone"])
            self.columns, self.now = dict(record["columns"]), record["now"]
            self.epochs = dict(record["epochs"])
            self.ledger = {
                lineage: {each[0]: Recorded(*each) for each in entries} for lineage, entries in record["ledger"].items()
            }
        elif record["kind"] == CLAIM:
            self.epochs[record["lineage"]] = record["epoch"]
        for facts in record.get("files", ()):
            self.files[facts["path"]] = File(**facts)
        if record["kind"] in (BATCH, ROWS):
            self.now = record["now"] or self.now
            for part, columns in record["columns"].items():
                self.columns[part] = joined(self.columns.get(part, {}), columns)
        if record["kind"] in (BATCH, MARK):
            known = self.ledger.setdefault(record["lineage"], {})
            known[record["entry"][0]] = Recorded(*record["entry"])
            while (oldest := next(iter(known))) <= record["entry"][0] - KEPT:
                del known[oldest]


class Log:
    """The records of one folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "_log"

    def numbers(self) -> list[int]:
        """The records that are there, in order; none where there is no log."""
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(found[1]) for name in names if (found := _RECORD.fullmatch(name)))

    def refreshed(self, held: Held) -> Held:
        """What the folder holds now, from what it held before."""
        numbers = self.numbers()
        new = [number for number in numbers if number > held.number]
        if not new:
            return held
        if new[0] == held.number + 1 and new[-1] == held.number + len(new):
            try:
                for number in new:
                    held.take(number, self.record(number))
            except FileNotFoundError:
                pass  # the whole state was told anew meanwhile
            else:
                return held
        return self.held()

    def held(self) -> Held:
        """What the folder holds now, from the newest whole state on."""
        while True:
            try:
                return self._held(self.numbers())
            except FileNotFoundError:
                continue  # deleted between two looks, so there is a newer state

    def _held(self, numbers: list[int]) -> Held:
        later: list[tuple[int, Mapping[str, Any]]] = []
        for number in reversed(numbers):
            if later and later[-1][0] != number + 1:
                raise self._broken(number + 1)
            later.append((number, self.record(number)))
            if later[-1][1]["kind"] == STATE:
                break
        if later and later[-1][1]["kind"] != STATE and later[-1][0] != 1:
            raise self._broken(later[-1][0] - 1)
        held = Held()
        for number, record in reversed(later):
            held.take(number, record)
        return held

    def _broken(self, number: int) -> StateError:
        return StateError(
            f"the log of {self.root} lacks its record {number}",
            hint="restore the folder _log from a copy; without it nobody can tell which files count",
        )

    def record(self, number: int) -> Mapping[str, Any]:
        path = self.path(number)
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
            version = int(found["version"])
        except (ValueError, KeyError, TypeError) as problem:
            raise StateError(f"{path} cannot be read", detail=str(problem), hint="restore it from a copy") from None
        if version > VERSION:
            raise StateError(f"{path} is written by a newer Strandline", detail=f"version {version}", hint="upgrade")
        return found

    def path(self, number: int) -> Path:
        return self.folder / f"{number:020}.json"

    def publish(self, number: int, record: Mapping[str, Any]) -> bool:
        """Adds a record under this number, durably; False if another has it, or it is long past."""
        told = {"version": VERSION, "number": number, **record}
        draft = self.folder / f".{uuid.uuid4().hex}.tmp"
        with self.explained():
            write_new(draft, json.dumps(told, ensure_ascii=False).encode())
            try:
                os.link(draft, self.path(number))
            except FileExistsError:
                return False
            finally:
                draft.unlink()
            sync_folder(self.folder)
            if self._is_past(number):
                self.path(number).unlink(missing_ok=True)
                return False
        return True

    def _is_past(self, number: int) -> bool:
        """Whether the whole state was told after this number; it may have been free only because it was deleted."""
        with suppress(FileNotFoundError):
            return any(self.record(later)["kind"] == STATE for later in self.numbers() if later > number)
        return True

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Faults of the file system in our own words."""
        try:
            yield
        except OSError as problem:
            said = str(problem.strerror or problem)
            if problem.errno in _PASSING:
                raise SinkUnavailable(f"{self.root} cannot be written now", detail=said) from None
            hint = "check the path and its folder"
            if problem.errno in _NO_LINKS and problem.filename2 is not None:
                hint = "a log needs a file system with hard links: choose a folder on another"
            raise SinkError(f"cannot write to {self.root}", detail=said, hint=hint) from None


def write_new(path: Path, data: bytes, mode: int = 0o666) -> None:
    """A file that was not there, durable but for its name in the folder."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
