"""Dead letters beside a table of Delta, and what became of them, in a table of notes.

A note is a commit that names its number as a transaction id: of two that stand on the same notes only one is made.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from strandline.connectors.delta.table import DeltaLog, Overtaken, appended, delta_library
from strandline.errors import SinkError, SinkUnavailable
from strandline.letters.store import Marks, Redrive, envelopes, marked, refuse_overlap

_NOTES: Final = "strandline-letters"
_BEGUN, _FINISHED = "begun", "finished"
_AT_ONCE: Final = 1_000
_ATTEMPTS: Final = 50


@dataclass(slots=True)
class Noted:
    """What the notes come to."""

    number: int = 0
    begun: Redrive | None = None
    redriven: dict[str, str] = field(default_factory=dict)

    def take(self, note: Mapping[str, Any]) -> None:
        """One more, in their order."""
        self.number = note["number"]
        letters = json.loads(note["letters"])
        if note["kind"] == _BEGUN:
            self.begun = Redrive(note["redrive"], tuple(letters), json.loads(note["before"]))
            return
        self.redriven = dict.fromkeys(letters, note["redrive"]) | self.redriven
        if self.begun is not None and self.begun.id == note["redrive"]:
            self.begun = None


@dataclass(frozen=True, slots=True)
class DeltaLetters:
    """A table of letters, asked from outside of the job, and how its store is reached."""

    uri: str
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.uri

    def read(self) -> pl.DataFrame:
        return marked(envelopes(self._rows(self.uri)), self._noted().redriven)

    def begun(self) -> Redrive | None:
        return self._noted().begun

    def begin(self, redrive: Redrive) -> None:
        noted = self._noted()
        refuse_overlap(redrive, noted.begun, noted.redriven, self.name)
        try:
            self._note(noted, _BEGUN, redrive, redrive.letters)
        except Overtaken:
            raise SinkError(f"another redrive of {self.name} was faster", hint="try again") from None

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:  # noqa: ARG002 - no source shares its transactions
        return None

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        said = ""
        for _ in range(_ATTEMPTS):
            try:
                return self._note(self._noted(), _FINISHED, redrive, sent)
            except Overtaken as problem:
                said = str(problem)
        raise SinkUnavailable(f"{self.uri} is written to by others all the time", detail=said[:200])

    def drop(self, ids: Sequence[str]) -> int:
        known = self.read().filter(pl.col("id").is_in(ids))["id"].to_list()
        for start in range(0, len(known), _AT_ONCE):
            which = ", ".join("'" + each.replace("'", "''") + "'" for each in known[start : start + _AT_ONCE])
            log = DeltaLog(self.uri, self.options)
            with log.explained():
                log.table.delete(f"id IN ({which})")
        return len(known)

    def close(self) -> None:
        pass

    def _noted(self) -> Noted:
        noted = Noted()
        notes = self._rows(f"{self.uri}_notes")
        for note in notes.sort("number").iter_rows(named=True) if notes.height else ():
            noted.take(note)
        return noted

    def _note(self, noted: Noted, kind: str, redrive: Redrive, letters: Sequence[str]) -> None:
        """One more note, that stands on these and no others."""
        told = {
            "number": noted.number + 1, "kind": kind, "redrive": redrive.id, "letters": json.dumps([*letters]),
            "before": json.dumps(redrive.before),
        }  # fmt: skip
        log = DeltaLog(f"{self.uri}_notes", self.options)
        log.follow(_NOTES, noted.number, appended(pl.DataFrame([told]), self.options))

    def _rows(self, uri: str) -> pl.DataFrame:
        library = delta_library()
        if not library.DeltaTable.is_deltatable(uri, dict(self.options)):
            return pl.DataFrame()
        log = DeltaLog(uri, self.options)
        with log.explained():
            found = pl.from_arrow(log.table.to_pyarrow_table())
        return found if isinstance(found, pl.DataFrame) else found.to_frame()
