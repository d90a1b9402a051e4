"""Store notes beside dead letters in files: the redrive in progress, redriven letters, and dropped ones.

    _redrive.json          a redrive that was begun and not finished
    _redriven/3c1f….json   the letters of a finished redrive
    _dropped/….json        dropped letters, which stay dropped if a job writes them again
    _lock                  locked by a process that changes one of these

Readers of folders skip names that begin with `_` or `.`, so that they find the letters only.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from strandline.errors import SinkError, StateError
from strandline.letters.store import Marks, Redrive, marked, refuse_overlap
from strandline.ports.durable_files import alone, remove, write_whole


@dataclass(frozen=True, slots=True)
class NotedLetters:
    """A folder with notes, and functions that read all its letters and erase some from their files."""

    name: str
    folder: Path
    find: Callable[[], pl.DataFrame]
    """Reads every envelope, dropped and duplicate ones too."""
    erase: Callable[[frozenset[str]], None]

    def read(self) -> pl.DataFrame:
        found, gone = self.find(), self._dropped()
        return marked(found.filter(~pl.col("id").is_in(gone).fill_null(value=False)), self._redriven())

    def begun(self) -> Redrive | None:
        try:
            facts = _facts(self._begun)
        except FileNotFoundError:
            return None
        return Redrive(facts["id"], tuple(facts["letters"]), facts["before"])

    def begin(self, redrive: Redrive) -> None:
        with self._locked():
            refuse_overlap(redrive, self.begun(), self._redriven(), self.name)
            facts = {"id": redrive.id, "letters": redrive.letters, "before": redrive.before}
            write_whole(self._begun, json.dumps(facts).encode())

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:  # noqa: ARG002 - no source shares its transactions
        return None

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        with self._locked():
            if sent:
                self._write_note("_redriven", redrive.id, {"id": redrive.id, "letters": [*sent]})
            known = self.begun()
            if known is not None and known.id == redrive.id:
                remove(self._begun)

    def drop(self, ids: Sequence[str]) -> int:
        many = self.read().filter(pl.col("id").is_in(ids)).height
        if many:
            with self._locked():
                self._write_note(
                    "_dropped", sha256(",".join(sorted(ids)).encode()).hexdigest()[:16], {"letters": [*ids]}
                )
            self.erase(frozenset(ids))
        return many

    def close(self) -> None:
        pass

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with alone(self.folder / "_lock"):
                yield
        except OSError as problem:
            raise SinkError(f"{self.folder} cannot be written", detail=str(problem)) from None

    @property
    def _begun(self) -> Path:
        return self.folder / "_redrive.json"

    def _redriven(self) -> dict[str, str]:
        return {each: facts["id"] for facts in self._notes("_redriven") for each in facts["letters"]}

    def _dropped(self) -> list[str]:
        return [each for facts in self._notes("_dropped") for each in facts["letters"]]

    def _notes(self, kind: str) -> list[dict[str, Any]]:
        return [_facts(path) for path in sorted((self.folder / kind).glob("[!.]*.json"))]

    def _write_note(self, kind: str, name: str, facts: Mapping[str, Any]) -> None:
        (self.folder / kind).mkdir(exist_ok=True, mode=0o700)
        write_whole(self.folder / kind / f"{name}.json", json.dumps(facts).encode())


def _facts(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as problem:
        raise StateError(f"{path} cannot be read", detail=str(problem), hint="restore it from a copy") from None
    return found
