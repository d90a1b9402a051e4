"""A savepoint on disk: a folder that anyone can read, and that says of every file in it what it must be.

    manifest.json                  all but the state: whose it is, at which batch and positions; a digest of each file
    state/step-0/windows.parquet   what keyed step 0 keeps, a file for each kind of frame, each row with its key group
    sources/0/…                    what a source wrote down for itself in Spark's checkpoint, such as lists of files
    backfill.json                  only of a job that was begun with a backfill: how far that had come

It is written aside and then renamed, so a folder with this name is whole; and it is never changed afterwards.
"""

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import quote

import polars as pl

from strandline.checkpoint.job_folder import Identity
from strandline.errors import SavepointError
from strandline.kernel.operator import Exported
from strandline.kernel.watermarks import progress_from_facts, progress_to_facts
from strandline.ports.durable_files import sync_folder

FORMAT: Final = 1
"""The version of the layout that is written; every one from 1 on is read."""
MANIFEST: Final = "manifest.json"
GROUP: Final = "@group"
"""The column with the key group of a row."""

_SEAL: Final = "seal"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """How far the ledger of a sink is, if it holds all that the job had told: its last batch, and from what range."""

    sink: str
    lineage: str
    epoch: int | None
    batch: int
    digest: str


@dataclass(frozen=True, slots=True)
class StepFiles:
    """What is kept of a keyed step, and in which files."""

    number: int
    keys: tuple[str, ...]
    rows: int
    turn: int
    progress: Mapping[str, Any]
    frames: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a savepoint says of itself."""

    id: str
    created: str
    version: str
    """Of the Strandline that wrote it."""
    batch: int
    clock: int
    watermark: int
    identity: Identity
    positions: tuple[str, ...]
    """Of every source, and of the heartbeat, as Spark writes them."""
    digest: str
    ends: str
    """By these two a sink's ledger knows the batch."""
    partitions: int
    steps: tuple[StepFiles, ...]
    sinks: tuple[SinkPosition, ...]
    files: Mapping[str, str]
    """The SHA-256 of every other file."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint that was found, with what its manifest says."""

    folder: Path
    manifest: Manifest

    @property
    def name(self) -> str:
        return self.folder.name

    def step(self, number: int) -> Exported:
        """What a keyed step kept."""
        mine = next(each for each in self.manifest.steps if each.number == number)
        frames = {name: pl.read_parquet(self.folder / file).drop(GROUP) for name, file in mine.frames.items()}
        return Exported(progress_from_facts(mine.progress), mine.turn, frames)

    @property
    def size(self) -> int:
        return sum((self.folder / name).stat().st_size for name in self.manifest.files)


class Draft:
    """A savepoint that is being written, aside."""

    def __init__(self, folder: Path) -> None:
        if not _NAME.fullmatch(folder.name):
            raise SavepointError(
                f"a savepoint cannot be called {folder.name!r}", hint="letters, digits, dots and dashes make a name"
            )
        if folder.exists():
            raise SavepointError(f"{folder} is there already", hint="choose another name, or delete it first")
        self._folder = folder
        self.at = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.draft")
        try:
            self.at.mkdir(parents=True, mode=0o700)
        except OSError as problem:
            raise SavepointError(
                f"cannot write {folder}", detail=problem.strerror or "", hint="choose another place"
            ) from None

    def step(
        self, number: int, keys: tuple[str, ...], moved: Exported, frames: Mapping[str, pl.DataFrame]
    ) -> StepFiles:
        """Writes the frames of a keyed step; each must be read back as it was."""
        files = {name: f"state/step-{number}/{quote(name.replace(':', '.'), safe='')}.parquet" for name in frames}
        for name, frame in frames.items():
            path = self.at / files[name]
            path.parent.mkdir(parents=True, exist_ok=True)
            frame.write_parquet(path)
            back = pl.read_parquet(path)
            if back.schema != frame.schema or not back.equals(frame):
                kinds = {column: kind for column, kind in frame.schema.items() if back.schema.get(column) != kind}
                raise SavepointError(
                    f"the {name} of step {number} cannot be kept in Parquet as they are", detail=str(kinds)
                )
        return StepFiles(number, keys, moved.rows, moved.turn, progress_to_facts(moved.progress), files)

    def finish(self, manifest: Manifest) -> Savepoint:
        """Makes all of it durable, then gives it its name."""
        files = {}
        for path in sorted(each for each in self.at.rglob("*") if each.is_file()):
            files[path.relative_to(self.at).as_posix()] = _hashed(path, durable=True)
        told = asdict(manifest) | {"files": files}
        text = json.dumps(_sealed({"format": FORMAT, **told}), indent=2) + "\n"
        (self.at / MANIFEST).write_text(text)
        _hashed(self.at / MANIFEST, durable=True)
        for folder in [self.at, *(each for each in self.at.rglob("*") if each.is_dir())]:
            sync_folder(folder)
        self.at.rename(self._folder)
        sync_folder(self._folder.parent)
        return load(self._folder)

    def discard(self) -> None:
        shutil.rmtree(self.at, ignore_errors=True)


def load(folder: Path) -> Savepoint:
    """A savepoint by its manifest, which must be whole; the other files are looked at by `verify`."""
    path = folder / MANIFEST
    if not path.is_file():
        raise SavepointError(f"{folder} is no savepoint", detail=f"it has no {MANIFEST}", hint="name its folder")
    try:
        told = json.loads(path.read_text())
        version = told["format"]
    except (ValueError, KeyError, TypeError) as problem:
        raise _damaged(path, str(problem)) from None
    if not isinstance(version, int) or version > FORMAT:
        raise SavepointError(
            f"{folder} was written by a newer Strandline",
            detail=f"its format is {version}, this one reads up to {FORMAT}; written by {told.get('version')}",
            hint="restore it with that version, or a later one",
        )
    if _sealed(told) != told:
        raise _damaged(path, "it does not match its seal")
    try:
        return Savepoint(folder, _manifest(told))
    except (KeyError, TypeError, ValueError) as problem:
        raise _damaged(path, f"{type(problem).__name__}: {problem}") from None


def verify(savepoint: Savepoint) -> None:
    """Every file is there and as it was written; the first that is not is named."""
    for name, digest in savepoint.manifest.files.items():
        path = savepoint.folder / name
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts or _leads_out(path, savepoint.folder):
            raise _damaged(path, "it lies outside of the savepoint")
        if not path.is_file():
            raise _damaged(path, "it is missing")
        if _hashed(path) != digest:
            raise _damaged(path, "its content is not what was written")


def found_in(folder: Path) -> Iterator[Savepoint]:
    """The savepoints of a folder, the oldest first."""
    places = [each for each in folder.iterdir() if (each / MANIFEST).is_file() and not each.name.startswith(".")]
    yield from sorted((load(each) for each in places), key=lambda each: (each.manifest.created, each.name))


def delete(savepoint: Savepoint) -> None:
    """Takes its name away first, so that nobody finds half of it."""
    aside = savepoint.folder.with_name(f".{savepoint.name}.{uuid.uuid4().hex[:8]}.deleted")
    savepoint.folder.rename(aside)
    sync_folder(aside.parent)
    shutil.rmtree(aside)


def _manifest(told: dict[str, Any]) -> Manifest:
    known = {name: each for name, each in told.items() if name not in ("format", _SEAL)}
    who = known["identity"]
    identity = Identity(**{**who, "moves": tuple(who["moves"]), "starting": tuple(who["starting"])})
    steps = tuple(StepFiles(**{**each, "keys": tuple(each["keys"])}) for each in known["steps"])
    sinks = tuple(SinkPosition(**each) for each in known["sinks"])
    return Manifest(
        **{**known, "identity": identity, "steps": steps, "sinks": sinks, "positions": tuple(known["positions"])}
    )


def _sealed(told: dict[str, Any]) -> dict[str, Any]:
    """With a digest over all the rest, by which a manifest knows itself."""
    rest = {name: each for name, each in told.items() if name != _SEAL}
    seal = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    return {**rest, _SEAL: seal}


def _hashed(path: Path, *, durable: bool = False) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if durable:
            os.fsync(file.fileno())
    return digest


def _leads_out(path: Path, folder: Path) -> bool:
    """Whether a link on the way leads elsewhere."""
    return not path.resolve().is_relative_to(folder.resolve())


def _damaged(path: Path, why: str) -> SavepointError:
    return SavepointError(
        f"the savepoint is damaged: {path}", detail=why, hint="copy it again from where it is whole, or use another"
    )
