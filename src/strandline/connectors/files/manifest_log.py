"""Keep a folder's log: numbered records that say which files are live, each written atomically.

    totals/
      _log/00000000000000000042.json   one record: a driver's claim, a batch, a mark, rows, or the whole state
      panes/  late/  dead/             files; one that no record names is not live

A record is written to a draft and synced, then linked under the next number, which only one writer can have. So each
record is judged against all before it: a writer that finds its number taken reads the other record and judges again.
A record of the whole state supersedes those before it, which may then be deleted. A writer that slept all the while may
link a record under such a deleted number. That record has no effect: readers begin with the newest whole state, and the
writer notices that its number is superseded.
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
from strandline.formats.row_files import merge_columns
from strandline.ports.durable_files import sync_folder
from strandline.ports.ledger import Recorded

VERSION: Final = 1
CLAIM, BATCH, MARK, ROWS, STATE = "claim", "batch", "mark", "rows", "state"
KEPT: Final = 1_000
"""Ledger entries that are kept of a job, many more than Spark can go back."""

_RECORD: Final = re.compile(r"(\d{20})\.json")
_PATH: Final = re.compile(r"(panes|late|dead)/[\w-]+\.(parquet|jsonl|csv)")
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_TRANSIENT: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class File:
    """A live file of the folder."""

    path: str
    part: str
    rows: int
    bytes: int

    def __post_init__(self) -> None:
        _require_own(self.path)
        if not self.path.startswith(f"{self.part}/"):
            raise StateError(f"the log names {self.path!r}, which is not a file of its folder")


@dataclass(slots=True)
class FolderState:
    """State of a folder after a log record, folded from all records up to it."""

    number: int = 0
    state_number: int = 0
    """The number of the newest state record."""
    files: dict[str, File] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    """Replaced files and when they were replaced, in seconds; readers may still have them open."""
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    """The columns and types of each part's files."""
    now: dict[str, Any] | None = None
    """How to find the latest answers among the panes: identity columns, order, retraction."""
    epochs: dict[str, int] = field(default_factory=dict)
    ledger: dict[str, dict[int, Recorded]] = field(default_factory=dict)

    def latest(self, lineage: str) -> Recorded | None:
        known = self.ledger.get(lineage)
        return known[max(known)] if known else None

    def apply(self, number: int, record: Mapping[str, Any]) -> None:
        """Apply one more record."""
        self.number = number
        if record["kind"] == STATE:
            self.state_number = number
            self.files, self.gone = {}, dict(record["gone"])
            for path in self.gone:  # compaction deletes them
                _require_own(path)
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
                self.columns[part] = merge_columns(self.columns.get(part, {}), columns)
        if record["kind"] in (BATCH, MARK):
            known = self.ledger.setdefault(record["lineage"], {})
            known[record["entry"][0]] = Recorded(*record["entry"])
            while (oldest := next(iter(known))) <= record["entry"][0] - KEPT:
                del known[oldest]


def _require_own(path: object) -> None:
    if not isinstance(path, str) or _PATH.fullmatch(path) is None:
        raise StateError(f"the log names {path!r}, which is not a file of its folder")


class Log:
    """The log records of one folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "_log"

    def numbers(self) -> list[int]:
        """The numbers of the records in order; empty if there is no log."""
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(found[1]) for name in names if (found := _RECORD.fullmatch(name)))

    def refresh(self, state: FolderState) -> FolderState:
        """Update a state with the records published since."""
        numbers = self.numbers()
        new = [number for number in numbers if number > state.number]
        if not new:
            return state
        if new[0] == state.number + 1 and new[-1] == state.number + len(new):
            try:
                for number in new:
                    state.apply(number, self.record(number))
            except FileNotFoundError:
                pass  # a newer state record was published in between
            else:
                return state
        return self.state()

    def state(self) -> FolderState:
        """Read the current state, from the newest state record on."""
        while True:
            try:
                return self._state(self.numbers())
            except FileNotFoundError:
                continue  # deleted between listing and reading, so there is a newer state

    def _state(self, numbers: list[int]) -> FolderState:
        later: list[tuple[int, Mapping[str, Any]]] = []
        for number in reversed(numbers):
            if later and later[-1][0] != number + 1:
                raise self._broken(number + 1)
            later.append((number, self.record(number)))
            if later[-1][1]["kind"] == STATE:
                break
        if later and later[-1][1]["kind"] != STATE and later[-1][0] != 1:
            raise self._broken(later[-1][0] - 1)
        state = FolderState()
        for number, record in reversed(later):
            state.apply(number, record)
        return state

    def _broken(self, number: int) -> StateError:
        return StateError(
            f"the log of {self.root} lacks its record {number}",
            hint="restore the folder _log from a copy; without it live files cannot be identified",
        )

    def record(self, number: int) -> Mapping[str, Any]:
        path = self.path(number)
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
            version = int(found["version"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as problem:
            raise StateError(f"{path} cannot be read", detail=str(problem), hint="restore it from a copy") from None
        if version > VERSION:
            raise StateError(f"{path} is written by a newer Strandline", detail=f"version {version}", hint="upgrade")
        return found

    def path(self, number: int) -> Path:
        return self.folder / f"{number:020}.json"

    def publish(self, number: int, record: Mapping[str, Any]) -> bool:
        """Publish a record under this number, durably; return False if the number is taken or superseded."""
        content = {"version": VERSION, "number": number, **record}
        draft = self.folder / f".{uuid.uuid4().hex}.tmp"
        with self.sink_errors():
            write_new(draft, json.dumps(content, ensure_ascii=False).encode())
            try:
                os.link(draft, self.path(number))
            except FileExistsError:
                return False
            finally:
                draft.unlink()
            sync_folder(self.folder)
            if self._is_superseded(number):
                self.path(number).unlink(missing_ok=True)
                return False
        return True

    def _is_superseded(self, number: int) -> bool:
        """Whether a state record was published after this number, which may then be free only because it was
        deleted."""
        with suppress(FileNotFoundError):
            return any(self.record(later)["kind"] == STATE for later in self.numbers() if later > number)
        return True

    @contextmanager
    def sink_errors(self) -> Iterator[None]:
        """Convert file system errors to sink errors."""
        try:
            yield
        except OSError as problem:
            detail = str(problem.strerror or problem)
            if problem.errno in _TRANSIENT:
                raise SinkUnavailable(f"{self.root} cannot be written now", detail=detail) from None
            hint = "check the path and its folder"
            if problem.errno in _NO_LINKS and problem.filename2 is not None:
                hint = "a log needs a file system with hard links: choose a folder on another"
            raise SinkError(f"cannot write to {self.root}", detail=detail, hint=hint) from None


def write_new(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a new file durably; its name in the folder is not synced yet."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
