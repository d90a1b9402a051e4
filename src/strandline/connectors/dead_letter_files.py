"""Store dead letters in a folder: a Parquet or JSON lines file for each batch that has any, and redrive marks.

    dead/
      4f0c…-000000000017-9b1d2c3e4f50.parquet   the letters of batch 17, written atomically
      _…                                        notes about redrives (`letters/file_notes.py`)

Readers of folders skip names that begin with `_` or `.`: `spark.read.parquet("dead/")` reads the letters only.
"""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

import polars as pl

from strandline.errors import InvalidStep, SetupError, SinkError, StateError
from strandline.kernel.dead_letters import NAMES, PUBLIC
from strandline.letters.envelope_json import from_json, to_json
from strandline.letters.file_notes import NotedLetters
from strandline.letters.store import TIMES, envelopes
from strandline.model.arguments import checked
from strandline.plan.endpoints import fields_of
from strandline.ports.durable_files import remove, write_whole
from strandline.ports.ledger import LedgerEntry
from strandline.ports.local_path import local_path

FORMATS: Final = ("parquet", "jsonl")
_MOMENT: Final = pl.Datetime("ms", "UTC")


@dataclass(frozen=True, slots=True)
class DeadFiles:
    """A folder of dead letters, and the format of its files."""

    path: str
    format: str = "parquet"
    mask: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidStep(f"unknown dead letter format {self.format!r}", hint=f"choose one of {', '.join(FORMATS)}")

    @property
    def name(self) -> str:
        return f"files in {self.path}"

    def open_letters(self, lineage: str) -> "OpenFiles":
        try:
            Path(self.path).mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise SinkError(
                f"cannot create the folder {self.path}", detail=str(problem), hint="choose another"
            ) from None
        return OpenFiles(Path(self.path), self.format, lineage)

    def letters(self) -> NotedLetters:
        """Open the letters in the folder for reading and redriving."""
        folder = Path(self.path)
        return NotedLetters(str(folder), folder, partial(_find, folder), partial(_erase, folder))


@checked
def dead_files(path: str | Path, *, format: str = "parquet", mask: Iterable[str] = ()) -> DeadFiles:  # noqa: A002 - Spark's term
    """Send dead letters to a folder, a file per batch: `write(sink, dead=dead_files("dead/", format="jsonl"))`."""
    return DeadFiles(local_path(path, "dead_files"), format, fields_of(mask))


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """A folder that an output of a job writes to."""

    folder: Path
    format: str
    lineage: str

    def put(self, letters: pl.DataFrame, entry: LedgerEntry) -> None:
        # The same batch writes the same name and bytes; a batch of another range does not replace its file.
        name = f"{self.lineage}-{entry.batch:012}-{sha256(entry.digest.encode()).hexdigest()[:12]}.{self.format}"
        try:
            write_whole(self.folder / name, _to_bytes(letters.rename(NAMES), self.format))
        except OSError as problem:
            raise SinkError(f"dead letters cannot be written to {self.folder}", detail=str(problem)) from None

    def close(self) -> None:
        pass


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise SetupError(
            f"the folder {folder} does not exist",
            hint="run the pipeline first; relative paths start at its working directory",
        )
    return sorted(path for path in folder.iterdir() if path.suffix[1:] in FORMATS and path.name[0] not in "._")


def _find(folder: Path) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=PUBLIC), *(_read(path) for path in _files(folder))])


def _erase(folder: Path, ids: frozenset[str]) -> None:
    for path in _files(folder):
        letters = _read(path)
        kept = letters.filter(~pl.col("id").is_in(ids).fill_null(value=False))
        if kept.is_empty():
            remove(path)
        elif kept.height < letters.height:
            write_whole(path, _to_bytes(kept, path.suffix[1:]))


def _to_bytes(letters: pl.DataFrame, form: str) -> bytes:
    if form == "jsonl":
        return b"".join(to_json(letter) + b"\n" for letter in letters.iter_rows(named=True))
    file = io.BytesIO()
    letters.with_columns(pl.from_epoch(name, "ms").cast(_MOMENT) for name in TIMES).write_parquet(file)
    return file.getvalue()


def _read(path: Path) -> pl.DataFrame:
    if path.suffix == ".jsonl":
        lines = path.read_bytes().splitlines()
        found = [from_json(line, f"line {number} of {path}") for number, line in enumerate(lines, 1)]
        return pl.DataFrame([{name: each[name] for name in PUBLIC} for each in found], schema=PUBLIC)
    try:
        return envelopes(pl.read_parquet(path))
    except pl.exceptions.PolarsError as problem:
        raise StateError(f"{path} is not a file of dead letters", detail=str(problem)[:200]) from None
