"""Examine a job's folder without Spark: find files that are torn, empty, missing, stray or alien."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from strandline.checkpoint.clock_floors import CLOCK
from strandline.checkpoint.examine_logs import commits, offsets, query_id, source_logs
from strandline.checkpoint.examine_state import state
from strandline.checkpoint.file_copies import COPIES, Copies, copy_line, read_copies
from strandline.checkpoint.findings import Action, Examination, Finding, Health, Move, Problem, Restore, read_bytes
from strandline.checkpoint.folder_lock import is_running
from strandline.checkpoint.hadoop_checksums import is_checksum, of_checksum
from strandline.checkpoint.job_folder import BACKFILL, EXTENT, read_identity
from strandline.checkpoint.log_identities import LOGS
from strandline.errors import CheckpointDamaged, CheckpointMismatch, SetupError

_ABOUT: Final = "strandline.json"
_INPUT_LOST: Final = "without it some of the input would be read twice, or not at all"
_NOTES: Final = "notes.json"
_LOOKS, _PAUSE = 5, 0.3
_OF_SPARK: Final = ("commits", "metadata", "offsets", "sources", "state")


def examine(folder: Path, *, deep: bool = True) -> Health:
    """Find all damage in a job's folder; if not `deep`, only what stops the next start and is found quickly."""
    lineage = _lineage(folder)
    copies = read_copies(folder, lineage)
    if lineage is None and not copies.held:
        raise SetupError(f"there is no job in {folder}", hint="name the folder that was given as checkpoint")
    look = Examination(folder, copies, deep)
    # List commits before offsets: a running job commits a batch only after it has planned it.
    in_log = look.numbers(look.spark / "commits")
    of_offsets, planned = offsets(look)
    of_commits, committed = commits(look, in_log, planned)
    findings = [
        *_identity(look, lineage),
        *_looked_up_once(look),
        *query_id(look),
        *of_offsets,
        *of_commits,
        *source_logs(look, planned),
        *state(look, planned, committed=committed),
        *(_own_files(look) if deep else ()),
    ]
    known = {each.path for each in findings}
    findings += [each for each in _strays(look) if each.path not in known] if deep else []
    return Health(folder, tuple(findings), planned, committed)


def require_sound(folder: Path) -> None:
    """Raise if Spark would fail at the start, or continue from other data than the job stored."""
    if not (folder / _ABOUT).exists() and not (folder / COPIES).exists():
        return
    stops: list[Finding] = []
    for _ in range(_LOOKS):
        stops = [each for each in examine(folder, deep=False).findings if not each.goes_on]
        if not stops or not is_running(folder):
            break
        time.sleep(_PAUSE)  # another driver writes there: a half-written file is complete in a moment
    if stops:
        first, more = stops[0], len(stops) - 1
        others = f"; {more} more" if more else ""
        raise CheckpointDamaged(
            f"{folder / first.path} is {first.problem}",
            detail=f"{first.what}: {first.means}{others}",
            hint=f"strandline checkpoint check {folder}",
        )


def _lineage(folder: Path) -> str | None:
    """Return the lineage in the identity file; None if it cannot be read."""
    try:
        return read_identity(folder / _ABOUT).lineage
    except (OSError, CheckpointMismatch):
        return None


def _identity(look: Examination, lineage: str | None) -> Iterator[Finding]:
    if lineage is not None:
        return
    path = look.folder / _ABOUT
    data = read_bytes(path)
    problem = Problem.MISSING if data is None else Problem.TORN if data else Problem.EMPTY
    acts = look.restore(path)
    means = "there is a copy" if acts else "without it the job's entries in the sinks cannot be identified"
    yield Finding(_ABOUT, problem, "the identity of the job", means, goes_on=False, acts=acts)


def _looked_up_once(look: Examination) -> Iterator[Finding]:
    """Check what was looked up once when the job started. A second look would find other data."""
    for name, what, lost in (
        (EXTENT, "what bounded input holds", _INPUT_LOST),
        (BACKFILL, "where history ends and the topic begins", _INPUT_LOST),
        (CLOCK, "the clock of the job, after that of the machine was set back", "without it elements may be late"),
    ):
        data, acts = read_bytes(look.folder / name), look.restore(look.folder / name)
        if _is_json(data) if data is not None else not acts:
            continue
        problem = Problem.MISSING if data is None else Problem.TORN if data else Problem.EMPTY
        means = "there is a copy" if acts else lost
        yield Finding(name, problem, what, means, goes_on=False, acts=acts)


def _own_files(look: Examination) -> Iterator[Finding]:
    """Check Strandline's own files that a job can do without."""
    notes = read_bytes(look.folder / _NOTES)
    if notes is not None and not _is_json(notes):
        means = "the job does without it: its first batch is a little slower"
        yield Finding(
            _NOTES, Problem.TORN if notes else Problem.EMPTY, "the watermarks of the last batches", means, goes_on=True,
            acts=(Move(_NOTES),),
        )  # fmt: skip
    logs = read_bytes(look.folder / LOGS)
    if logs is not None and not _is_json(logs):
        means = "the next start stores those of now"
        yield Finding(
            LOGS, Problem.TORN if logs else Problem.EMPTY, "the identities of topics and tables", means, goes_on=False,
            acts=(Move(LOGS),),
        )  # fmt: skip
    if read_bytes(look.folder / COPIES) == b"":
        acts: tuple[Action, ...] = (Move(COPIES),)
        yield Finding(COPIES, Problem.EMPTY, "copies of small files", "they are made again", goes_on=True, acts=acts)
    if look.copies.torn:
        means = "the copies that are whole are written anew, and the others are made again"
        acts = (Restore(COPIES, _rewritten(look.copies)),)
        yield Finding(COPIES, Problem.TORN, "copies of small files", means, goes_on=True, acts=acts)
    for draft in sorted(look.folder.glob("*.tmp")):
        yield _stray(look, draft)


def _rewritten(copies: Copies) -> bytes:
    return b"".join(copy_line(copies.lineage, path, content) for path, content in copies.held.items())


def _strays(look: Examination) -> Iterator[Finding]:
    """Find leftovers of killed processes, and files of neither Spark nor Strandline."""
    for path in sorted(look.spark.rglob("*")) if look.spark.is_dir() else []:
        if path.is_dir():
            continue
        if path.name.endswith((".tmp", ".tmp.crc")) or (is_checksum(path) and not of_checksum(path).exists()):
            yield _stray(look, path)
        elif not is_checksum(path) and _is_alien(path.relative_to(look.spark)):
            # Spark takes every number for a batch, also one with leading zeros.
            misleads = path.parent.name in ("offsets", "commits") and path.name.isdigit()
            means = "Spark takes it for a batch" if misleads else "no process reads it"
            yield Finding(
                look.name(path), Problem.ALIEN, "a file of another program", means, goes_on=not misleads,
                acts=(Move(look.name(path)),),
            )  # fmt: skip


def _stray(look: Examination, path: Path) -> Finding:
    what, acts = "a leftover of a killed process", (Move(look.name(path)),)
    return Finding(look.name(path), Problem.STRAY, what, "no process reads it", goes_on=True, acts=acts)


def _is_alien(path: Path) -> bool:
    top, *below = path.parts
    if top == "metadata" or not below or top not in _OF_SPARK:
        return path.parts != ("metadata",)
    if top in ("offsets", "commits"):
        return len(below) != 1 or not below[0].isdigit() or below[0] != str(int(below[0]))
    if top == "sources":
        return not below[0].isdigit() or not below[-1].removesuffix(".compact").isdigit()
    # Spark's state may have other kinds of files; none is without a suffix.
    return not below[0].isdigit() or (len(below) == 3 and below[1].isdigit() and not path.suffix)


def _is_json(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False
