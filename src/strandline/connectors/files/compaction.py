"""Few files of many: rows are gathered into larger files, and one record makes these count in place of the others."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.files.manifest_log import STATE, File, Held, Log
from strandline.connectors.files.task_files import PARTS, add_file
from strandline.errors import InvalidStep, SetupError, SinkUnavailable
from strandline.formats.row_files import decoded
from strandline.ports.file_stamps import job_label

TARGET: Final = 128 * 2**20
KEEP: Final = 3_600
_ATTEMPTS: Final = 100
_MAKER: Final = re.compile(r"\d+-(?:c(?P<state>\d+)|(?P<job>[0-9a-f]{8})-(?P<epoch>\d+))-\w+\.\w+")


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done: how many files counted before and count now, and how many were deleted, records with them."""

    before: int
    after: int
    deleted: int


def compact(path: str | Path, *, target_bytes: int = TARGET, keep_seconds: int = KEEP) -> Compacted:
    """Makes few files of many in a folder that `folder(…)` writes to, while jobs write and others read.

    Readers see the same rows before and after, and never both. Files that were replaced are kept for those who are
    reading them, and deleted by the first `compact` that comes `keep_seconds` later, with whatever killed jobs left.
    """
    if target_bytes < 1 or keep_seconds < 0:
        raise InvalidStep("a size of nothing, or a time before now", hint="give bytes and seconds")
    root, log = Path(path), Log(Path(path))
    if not log.folder.is_dir():
        raise SetupError(f"{path} has no log of files that count", hint="give a folder that sl.folder(…) writes to")
    with log.explained():
        begun = log.held()
        told = tell_anew(log, begun, _gathered(root, begun, target_bytes), int(time.time()) - keep_seconds)
        return Compacted(told.before, len(told.record["files"]), _delete(root, log, told, keep_seconds))


@dataclass(frozen=True, slots=True)
class Retold:
    """The whole state anew, how many files there were before, and those that may be deleted once it is told."""

    record: dict[str, Any]
    before: int
    due: frozenset[str]


Replaced = Sequence[tuple[Sequence[File], File | None]]
"""Files, each group with the one that is to take its place; None if nothing of it is left."""


def tell_anew(log: Log, begun: Held, replaced: Replaced, until: int) -> Retold:
    """Makes new files count in place of old ones, in a record of the whole state; of two at once only one does."""
    for _ in range(_ATTEMPTS):
        held = log.held()
        if held.told != begun.told:
            break  # somebody else has told it anew, and may have deleted what was gathered here
        told = _retold(held, replaced, until)
        if log.publish(held.number + 1, told.record):
            return told
    for _, file in replaced:
        if file is not None:
            (log.root / file.path).unlink(missing_ok=True)
    raise SinkUnavailable(f"{log.root} was compacted or written to by others all the while", hint="try again")


def label_of(file: File, held: Held) -> str:
    """The beginning of the name of a file that is to take the place of this one, and others with it."""
    return f"{file.path.partition('/')[2][:12]}-c{held.told}"


def _gathered(root: Path, held: Held, target: int) -> Replaced:
    """Neighbours that are small, each group with the file that is to take its place."""
    done: list[tuple[Sequence[File], File | None]] = []
    for part in PARTS:
        for files in _groups([file for file in held.files.values() if file.part == part], target):
            rows = pl.concat([decoded(root / file.path, held.columns[part]) for file in files])
            done.append((files, add_file(root, part, label_of(files[0], held), rows, _suffix(files[0]))))
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


def _retold(held: Held, replaced: Replaced, until: int) -> Retold:
    """All that the folder holds, with the new files in the places of the old."""
    instead = {files[0].path: new for files, new in replaced}
    old = {file.path for files, _ in replaced for file in files}
    files = [instead.get(path, file) for path, file in held.files.items() if path in instead or path not in old]
    kept = [asdict(file) for file in files if file is not None]
    gone = held.gone | dict.fromkeys(sorted(old), int(time.time()))
    due = frozenset(path for path, at in gone.items() if at <= until)
    ledger = {
        lineage: [[each.batch, each.digest, each.watermark, each.ends, each.output] for each in entries.values()]
        for lineage, entries in held.ledger.items()
    }
    record = {
        "kind": STATE, "files": kept, "columns": held.columns, "now": held.now,
        "gone": {path: at for path, at in gone.items() if path not in due}, "epochs": held.epochs, "ledger": ledger,
    }  # fmt: skip
    return Retold(record, len(held.files), due)


def _delete(root: Path, log: Log, told: Retold, keep: int) -> int:
    """Deletes what was replaced long enough ago, records that are needless now, and what the dead left behind."""
    held = log.held()
    until = time.time() - keep
    records = [path for number in log.numbers() if number < held.told and _is_older(path := log.path(number), until)]
    named = {*held.files, *held.gone}
    found = [(part, each.name) for part in PARTS for each in os.scandir(root / part)]
    left = [root / part / name for part, name in found if f"{part}/{name}" not in named and _is_left(name, held)]
    drafts = [path for path in log.folder.glob(".*.tmp") if _is_older(path, time.time() - KEEP)]
    everything = {*records, *left, *drafts, *(root / path for path in told.due)}
    for path in everything:
        path.unlink(missing_ok=True)
    return len(everything)


def _is_older(path: Path, until: float) -> bool:
    try:
        return path.stat().st_mtime <= until
    except FileNotFoundError:
        return False  # whoever wrote it has just taken it away


def _is_left(name: str, held: Held) -> bool:
    """Whether who wrote this file can no longer make it count: a newer driver has come, or a newer state."""
    found = _MAKER.fullmatch(name)
    if found is None:
        return False
    if found["state"] is not None:
        return int(found["state"]) < held.told
    epochs = {job_label(lineage): epoch for lineage, epoch in held.epochs.items()}
    return int(found["epoch"]) < epochs.get(found["job"], 0)
