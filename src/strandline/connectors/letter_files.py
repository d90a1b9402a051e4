"""Dead letters in a folder: a file for each batch that has any, Parquet or JSON lines, and the marks beside them.

    dead/
      4f0c…-000000000017-9b1d2c3e4f50.parquet   the letters of batch 17: whole, or not there
      _redrive.json                             a redrive that was begun and not finished
      _redriven/3c1f….json                      the letters of one that was
      _dropped/….json                           letters that are gone for good, should a job write them again

Readers of folders pass over names that begin with `_` or `.`: `spark.read.parquet("dead/")` finds the letters alone.
"""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.errors import InvalidStep, SetupError, SinkError, StateError
from strandline.kernel.letters import NAMES, PUBLIC
from strandline.letters.durable import remove, write_whole
from strandline.letters.store import KEPT, NEW, REDRIVE, REDRIVEN, STATE, Marks, Redrive, in_order
from strandline.letters.written import from_json, to_json
from strandline.plan.endpoints import fields_of
from strandline.spark.ports import LedgerEntry

FORMATS: Final = ("parquet", "jsonl")
_TIMES: Final = ("event_time", "first_seen")
_MOMENT: Final = pl.Datetime("ms", "UTC")


@dataclass(frozen=True, slots=True)
class DeadFiles:
    """A folder, and how letters are written in it."""

    path: str
    format: str = "parquet"
    mask: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidStep(f"dead letters as {self.format!r}", hint=f"choose one of {', '.join(FORMATS)}")

    @property
    def name(self) -> str:
        return f"files in {self.path}"

    def open_letters(self, lineage: str) -> "OpenFiles":
        try:
            Path(self.path).mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise SinkError(f"cannot make the folder {self.path}", detail=str(problem), hint="choose another") from None
        return OpenFiles(Path(self.path), self.format, lineage)

    def letters(self) -> "FileLetters":
        """What lies in the folder."""
        return FileLetters(Path(self.path))


def dead_files(path: str | Path, *, format: str = "parquet", mask: Iterable[str] = ()) -> DeadFiles:  # noqa: A002 - Spark's own word
    """Dead letters into a folder, a file a batch: `write(sink, dead=dead_files("dead/", format="jsonl"))`."""
    return DeadFiles(str(path), format, fields_of(mask))


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """A folder that a job writes to."""

    folder: Path
    format: str
    lineage: str

    def put(self, letters: pl.DataFrame, entry: LedgerEntry) -> None:
        # The same batch has the same name and the same bytes; one of another range does not take its place.
        name = f"{entry.lineage}-{entry.batch:012}-{sha256(entry.digest.encode()).hexdigest()[:12]}.{self.format}"
        try:
            write_whole(self.folder / name, _written(letters.rename(NAMES), self.format))
        except OSError as problem:
            raise SinkError(f"dead letters cannot be written to {self.folder}", detail=str(problem)) from None

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class FileLetters:
    """A folder with letters, asked from outside of the job."""

    folder: Path

    @property
    def name(self) -> str:
        return str(self.folder)

    def read(self) -> pl.DataFrame:
        frames = [pl.DataFrame(schema=PUBLIC), *(_read(path) for path in self._files())]
        redriven = {each: facts["id"] for facts in self._facts("_redriven") for each in facts["letters"]}
        dropped = [each for facts in self._facts("_dropped") for each in facts["letters"]]
        found = pl.concat(frames).unique("id", maintain_order=True).filter(~pl.col("id").is_in(dropped))
        marks = pl.Series(REDRIVE, [redriven.get(each) for each in found["id"]], pl.String)
        state = pl.when(pl.col(REDRIVE).is_null()).then(pl.lit(NEW)).otherwise(pl.lit(REDRIVEN)).alias(STATE)
        return in_order(found.with_columns(marks).with_columns(state).select(*KEPT))

    def begun(self) -> Redrive | None:
        if not self._begun.exists():
            return None
        facts = _facts(self._begun)
        return Redrive(facts["id"], tuple(facts["letters"]), facts["before"])

    def begin(self, redrive: Redrive) -> None:
        known = self.begun()
        if known is not None and known.id != redrive.id:
            raise SinkError(f"another redrive of {self.folder} has begun", hint="let it end, then try again")
        facts = {"id": redrive.id, "letters": redrive.letters, "before": redrive.before}
        write_whole(self._begun, json.dumps(facts).encode())

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:  # noqa: ARG002 - no source shares its transactions
        return None

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        if sent:
            self._keep("_redriven", redrive.id, {"id": redrive.id, "letters": [*sent]})
        remove(self._begun)

    def drop(self, ids: Sequence[str]) -> int:
        many = self.read().filter(pl.col("id").is_in(ids)).height
        if not many:
            return 0
        self._keep("_dropped", sha256(",".join(sorted(ids)).encode()).hexdigest()[:16], {"letters": [*ids]})
        for path in self._files():
            letters = _read(path)
            kept = letters.filter(~pl.col("id").is_in(ids))
            if kept.is_empty():
                remove(path)
            elif kept.height < letters.height:
                write_whole(path, _written(kept, path.suffix[1:]))
        return many

    def close(self) -> None:
        pass

    @property
    def _begun(self) -> Path:
        return self.folder / "_redrive.json"

    def _files(self) -> list[Path]:
        if not self.folder.is_dir():
            raise SetupError(
                f"there is no folder {self.folder}", hint="run the pipeline first; paths are as it gives them"
            )
        return sorted(path for path in self.folder.iterdir() if path.suffix[1:] in FORMATS and path.name[0] not in "._")

    def _facts(self, kind: str) -> list[dict[str, Any]]:
        return [_facts(path) for path in sorted((self.folder / kind).glob("[!.]*.json"))]

    def _keep(self, kind: str, name: str, facts: Mapping[str, Any]) -> None:
        (self.folder / kind).mkdir(exist_ok=True, mode=0o700)
        write_whole(self.folder / kind / f"{name}.json", json.dumps(facts).encode())


def _facts(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as problem:
        raise StateError(f"{path} cannot be read", detail=str(problem), hint="restore it from a copy") from None
    return found


def _written(letters: pl.DataFrame, form: str) -> bytes:
    if form == "jsonl":
        return b"".join(to_json(letter) + b"\n" for letter in letters.iter_rows(named=True))
    file = io.BytesIO()
    letters.with_columns(pl.from_epoch(name, "ms").cast(_MOMENT) for name in _TIMES).write_parquet(file)
    return file.getvalue()


def _read(path: Path) -> pl.DataFrame:
    if path.suffix == ".jsonl":
        lines = path.read_bytes().splitlines()
        found = [from_json(line, f"line {number} of {path}") for number, line in enumerate(lines, 1)]
        return pl.DataFrame([{name: each[name] for name in PUBLIC} for each in found], schema=PUBLIC)
    try:
        told = pl.read_parquet(path)
        return told.with_columns(pl.col(name).dt.timestamp("ms") for name in _TIMES).select(
            pl.col(name).cast(kind) for name, kind in PUBLIC.items()
        )
    except pl.exceptions.PolarsError as problem:
        raise StateError(f"{path} holds no dead letters", detail=str(problem)[:200]) from None
