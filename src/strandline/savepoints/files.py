"""Read and write a savepoint on disk: a folder of Parquet and JSON, with a digest of every file.

    manifest.json                  the job's identity, batch and offsets, and a digest of each file
    state/step-0/windows.parquet   the state of keyed step 0: a file for each kind of frame, a key group for each row
    sources/0/…                    the log of a source in Spark's checkpoint, such as lists of files
    backfill.json                  the phase of a backfill, if the job has one

It is written under another name and then renamed, so a folder with this name is complete. It never changes afterwards.
"""

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import polars as pl

from strandline.checkpoint.job_folder import BACKFILL, Identity
from strandline.errors import SavepointError
from strandline.kernel.operator import Exported
from strandline.kernel.watermarks import progress_from_facts, progress_to_facts
from strandline.ports.durable_files import sync_folder
from strandline.ports.inside_folder import is_inside

FORMAT: Final = 2
"""The version of the format that is written. All versions from 1 on can be read. Version 1 had the progress of each
partition with the names of its fields."""
MANIFEST: Final = "manifest.json"
GROUP: Final = "@group"
"""Column with the key group of a row."""

_SEAL: Final = "seal"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """The last ledger entry of a sink that holds everything up to the savepoint."""

    sink: str
    lineage: str
    epoch: int | None
    batch: int
    digest: str


@dataclass(frozen=True, slots=True)
class StepFiles:
    """The state of a keyed step: keys, progress, and the file of each frame."""

    number: int
    keys: tuple[str, ...]
    rows: int
    turn: int
    progress: Mapping[str, Any]
    frames: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a savepoint."""

    id: str
    created: str
    version: str
    """The version of Strandline that wrote it."""
    batch: int
    clock: int
    watermark: int
    identity: Identity
    positions: tuple[str, ...]
    """The offsets of every source and of the heartbeat, as Spark writes them."""
    digest: str
    ends: str
    """`digest` and `ends` identify the batch in a sink's ledger."""
    partitions: int
    steps: tuple[StepFiles, ...]
    sinks: tuple[SinkPosition, ...]
    files: Mapping[str, str]
    """The SHA-256 of every other file."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint and its manifest."""

    folder: Path
    manifest: Manifest

    @property
    def name(self) -> str:
        return self.folder.name

    def step(self, number: int) -> Exported:
        """Read the state of a keyed step."""
        step = next(each for each in self.manifest.steps if each.number == number)
        frames = {
            name: pl.read_parquet(self.folder / file, glob=False).drop(GROUP) for name, file in step.frames.items()
        }
        return Exported(progress_from_facts(step.progress), step.turn, frames)

    @property
    def size(self) -> int:
        return sum((self.folder / name).stat().st_size for name in self.manifest.files)


class Draft:
    """A savepoint that is being written, under another name."""

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
        """Write the frames of a keyed step; raise if one does not survive Parquet unchanged."""
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
        return StepFiles(number, keys, moved.rows, moved.batch_number, progress_to_facts(moved.progress), files)

    def finish(self, manifest: Manifest) -> Savepoint:
        """Make all files durable, then rename the folder."""
        files = {}
        for path in sorted(each for each in self.at.rglob("*") if each.is_file()):
            files[path.relative_to(self.at).as_posix()] = _hashed(path, durable=True)
        facts = asdict(manifest) | {"files": files}
        text = json.dumps(_sealed({"format": FORMAT, **facts}), indent=2) + "\n"
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
    """Read and check the manifest of a savepoint. `verify` checks the other files."""
    path = folder / MANIFEST
    if not path.is_file():
        raise SavepointError(f"{folder} is no savepoint", detail=f"it has no {MANIFEST}", hint="name its folder")
    try:
        facts = json.loads(path.read_text())
        version = facts["format"]
    except (ValueError, KeyError, TypeError) as problem:
        raise _damaged(path, str(problem)) from None
    if not isinstance(version, int) or version > FORMAT:
        raise SavepointError(
            f"{folder} was written by a newer Strandline",
            detail=f"its format is {version}, this one reads up to {FORMAT}; written by {facts.get('version')}",
            hint="restore it with that version, or a later one",
        )
    if _sealed(facts) != facts:
        raise _damaged(path, "it does not match its seal")
    try:
        found = Savepoint(folder, _manifest(facts))
        names = [*found.manifest.files, *_frames(found)]
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise _damaged(path, f"{type(problem).__name__}: {problem}") from None
    for name in names:
        if not is_inside(folder, name):
            raise _damaged(folder / str(name), "it lies outside of the savepoint")
    return found


def verify(savepoint: Savepoint) -> None:
    """Check the digest of every file; raise for the first that is missing or damaged, or that has no digest."""
    files = savepoint.manifest.files
    for name, digest in files.items():
        path = savepoint.folder / name
        if not is_inside(savepoint.folder, name):
            raise _damaged(path, "it lies outside of the savepoint")
        if not path.is_file():
            raise _damaged(path, "it is missing")
        if _hashed(path) != digest:
            raise _damaged(path, "its content does not match its digest")
    for name in [*_frames(savepoint), *_present(savepoint.folder)]:
        if name not in files:
            raise _damaged(
                savepoint.folder / name, "the manifest has no digest of it, so its content cannot be checked"
            )


def _frames(savepoint: Savepoint) -> list[str]:
    return [file for step in savepoint.manifest.steps for file in step.frames.values()]


def _present(folder: Path) -> list[str]:
    """List the files that a restore would read."""
    places = [folder / BACKFILL, *(folder / "sources").rglob("*")]
    return [path.relative_to(folder).as_posix() for path in places if path.is_symlink() or path.is_file()]


def found_in(folder: Path) -> Iterator[Savepoint]:
    """Return the savepoints in a folder, oldest first."""
    places = [each for each in folder.iterdir() if (each / MANIFEST).is_file() and not each.name.startswith(".")]
    yield from sorted((load(each) for each in places), key=lambda each: (each.manifest.created, each.name))


def delete(savepoint: Savepoint) -> None:
    """Rename the savepoint, then delete it, so that no process finds a part of it."""
    hidden = savepoint.folder.with_name(f".{savepoint.name}.{uuid.uuid4().hex[:8]}.deleted")
    savepoint.folder.rename(hidden)
    sync_folder(hidden.parent)
    shutil.rmtree(hidden)


def _manifest(facts: dict[str, Any]) -> Manifest:
    known = {name: each for name, each in facts.items() if name not in ("format", _SEAL)}
    owner = known["identity"]
    identity = Identity(**{**owner, "moves": tuple(owner["moves"]), "starting": tuple(owner["starting"])})
    steps = tuple(StepFiles(**{**each, "keys": tuple(each["keys"])}) for each in known["steps"])
    sinks = tuple(SinkPosition(**each) for each in known["sinks"])
    return Manifest(
        **{**known, "identity": identity, "steps": steps, "sinks": sinks, "positions": tuple(known["positions"])}
    )


def _sealed(facts: dict[str, Any]) -> dict[str, Any]:
    """Add a digest over the rest of the manifest."""
    rest = {name: each for name, each in facts.items() if name != _SEAL}
    seal = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    return {**rest, _SEAL: seal}


def _hashed(path: Path, *, durable: bool = False) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if durable:
            os.fsync(file.fileno())
    return digest


def _damaged(path: Path, why: str) -> SavepointError:
    return SavepointError(
        f"the savepoint is damaged: {path}", detail=why, hint="copy it again from an undamaged place, or use another"
    )
