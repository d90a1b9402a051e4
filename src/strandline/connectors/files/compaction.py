"""Compact a folder: merge small files into larger ones, and replace them by one log record."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.files.manifest_log import STATE, File, FolderState, Log
from strandline.connectors.files.task_files import PARTS, add_file
from strandline.errors import InvalidStep, SetupError, SinkUnavailable
from strandline.formats.row_files import decode_file
from strandline.model.arguments import checked
from strandline.ports.file_stamps import job_label

TARGET: Final = 128 * 2**20
KEEP: Final = 3_600
_ATTEMPTS: Final = 100
_WRITER_OF_FILE: Final = re.compile(r"\d+-(?:c(?P<state>\d+)|(?P<job>[0-9a-f]{8})-(?P<epoch>\d+))-\w+\.\w+")


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a compaction: counts of live files before and after, and of deleted files, log records included."""

    before: int
    after: int
    deleted: int


@checked
def compact(path: str | Path, *, target_bytes: int = TARGET, keep_seconds: int = KEEP) -> Compacted:
    """Merge small files of a folder that `folder(…)` writes, while jobs write and other processes read.

    Readers see the same rows before and after, and never both versions. Replaced files are kept for running readers.
    The first `compact` that runs `keep_seconds` later deletes them, together with files that killed jobs left.
    """
    if target_bytes < 1 or keep_seconds < 0:
        raise InvalidStep(
            "target_bytes is below 1, or keep_seconds is negative", hint="use 1 byte or more, and 0 seconds or more"
        )
    root, log = Path(path), Log(Path(path))
    if not log.folder.is_dir():
        raise SetupError(f"{path} has no manifest log", hint="use a folder that sl.folder(…) writes to")
    with log.sink_errors():
        started = log.state()
        merged = _merge_small_files(root, started, target_bytes)
        new = publish_state(log, started, merged, int(time.time()) - keep_seconds)
        return Compacted(new.before, len(new.record["files"]), _delete(root, log, new, keep_seconds))


@dataclass(frozen=True, slots=True)
class NewState:
    """The whole state as a new log record, the number of files before, and the files to delete once it is published."""

    record: dict[str, Any]
    before: int
    due: frozenset[str]


Replaced = Sequence[tuple[Sequence[File], File | None]]
"""Groups of old files, each with its replacement; None if no row is left."""


def publish_state(log: Log, started: FolderState, replaced: Replaced, until: int) -> NewState:
    """Publish a state record in which new files replace old ones; of two concurrent attempts only one succeeds."""
    for _ in range(_ATTEMPTS):
        state = log.state()
        if state.state_number != started.state_number:
            break  # another process has published a state, and may have deleted these inputs
        new = _new_state(state, replaced, until)
        if log.publish(state.number + 1, new.record):
            return new
    for _, file in replaced:
        if file is not None:
            (log.root / file.path).unlink(missing_ok=True)
    raise SinkUnavailable(
        f"{log.root} was compacted or written to by other processes at every attempt", hint="try again"
    )


def label_of(file: File, state: FolderState) -> str:
    """Name prefix of the file that replaces this one and its group."""
    return f"{file.path.partition('/')[2][:12]}-c{state.state_number}"


def _merge_small_files(root: Path, state: FolderState, target: int) -> Replaced:
    """Merge neighbouring small files, and return each group with its new file."""
    done: list[tuple[Sequence[File], File | None]] = []
    for part in PARTS:
        for files in _groups([file for file in state.files.values() if file.part == part], target):
            rows = pl.concat([decode_file(root / file.path, state.columns[part]) for file in files])
            done.append((files, add_file(root, part, label_of(files[0], state), rows, _suffix(files[0]))))
    return done


def _groups(files: list[File], target: int) -> Iterator[list[File]]:
    group: list[File] = []
    for file in files:
        fits = sum(each.bytes for each in group) + file.bytes <= target
        if group and (not fits or _suffix(file) != _suffix(group[0])):
            if len(group) > 1:
                yield group
            group = []
        group.append(file)
    if len(group) > 1:
        yield group


def _suffix(file: File) -> str:
    return file.path.rpartition(".")[2]


def _new_state(state: FolderState, replaced: Replaced, until: int) -> NewState:
    """Build the state record with the new files in place of the old ones."""
    replacements = {files[0].path: new for files, new in replaced}
    old = {file.path for files, _ in replaced for file in files}
    files = [
        replacements.get(path, file) for path, file in state.files.items() if path in replacements or path not in old
    ]
    kept = [asdict(file) for file in files if file is not None]
    gone = state.gone | dict.fromkeys(sorted(old), int(time.time()))
    due = frozenset(path for path, at in gone.items() if at <= until)
    ledger = {
        lineage: [[each.batch, each.digest, each.watermark, each.ends, each.output] for each in entries.values()]
        for lineage, entries in state.ledger.items()
    }
    record = {
        "kind": STATE, "files": kept, "columns": state.columns, "now": state.now,
        "gone": {path: at for path, at in gone.items() if path not in due}, "epochs": state.epochs, "ledger": ledger,
    }  # fmt: skip
    return NewState(record, len(state.files), due)


def _delete(root: Path, log: Log, new: NewState, keep: int) -> int:
    """Delete files that were replaced long enough ago, superseded log records, and files that killed jobs left."""
    state = log.state()
    until = time.time() - keep
    records = [
        path for number in log.numbers() if number < state.state_number and _is_older(path := log.path(number), until)
    ]
    named = {*state.files, *state.gone}
    found = [(part, each.name) for part in PARTS for each in os.scandir(root / part)]
    abandoned = [
        root / part / name for part, name in found if f"{part}/{name}" not in named and _is_abandoned(name, state)
    ]
    drafts = [path for path in log.folder.glob(".*.tmp") if _is_older(path, time.time() - KEEP)]
    doomed = {*records, *abandoned, *drafts, *(root / path for path in new.due)}
    for path in doomed:
        path.unlink(missing_ok=True)
    return len(doomed)


def _is_older(path: Path, until: float) -> bool:
    try:
        return path.stat().st_mtime <= until
    except FileNotFoundError:
        return False  # its writer has just removed it


def _is_abandoned(name: str, state: FolderState) -> bool:
    """Whether this file can no longer become live: a newer driver has claimed the sink, or a newer state is
    published."""
    found = _WRITER_OF_FILE.fullmatch(name)
    if found is None:
        return False
    if found["state"] is not None:
        return int(found["state"]) < state.state_number
    epochs = {job_label(lineage): epoch for lineage, epoch in state.epochs.items()}
    return int(found["epoch"]) < epochs.get(found["job"], 0)
