"""Store dead letters beside a Delta table, and the state of redrives in a table of notes.

A note is a commit that carries its number as a transaction id: of two concurrent notes only one is committed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from strandline.connectors.delta.table import CommitConflict, DeltaLog, append_rows, delta_library
from strandline.errors import SinkError, SinkUnavailable
from strandline.letters.store import Marks, Redrive, envelopes, marked, refuse_overlap

_NOTES: Final = "strandline-letters"
_BEGUN, _FINISHED = "begun", "finished"
_AT_ONCE: Final = 1_000
_ATTEMPTS: Final = 50


@dataclass(slots=True)
class RedriveNotes:
    """Redrive state, folded from the notes."""

    number: int = 0
    begun: Redrive | None = None
    redriven: dict[str, str] = field(default_factory=dict)

    def apply(self, note: Mapping[str, Any]) -> None:
        """Apply one more note, in their order."""
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
    """A table of dead letters, read and changed from outside of the job, and its storage options."""

    uri: str
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.uri

    def read(self) -> pl.DataFrame:
        return marked(envelopes(self._rows(self.uri)), self._read_notes().redriven)

    def begun(self) -> Redrive | None:
        return self._read_notes().begun

    def begin(self, redrive: Redrive) -> None:
        notes = self._read_notes()
        refuse_overlap(redrive, notes.begun, notes.redriven, self.name)
        try:
            self._commit_note(notes, _BEGUN, redrive, redrive.letters)
        except CommitConflict:
            raise SinkError(f"another redrive of {self.name} was started at the same time", hint="try again") from None

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:  # noqa: ARG002 - no source shares its transactions
        return None

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                return self._commit_note(self._read_notes(), _FINISHED, redrive, sent)
            except CommitConflict as problem:
                reason = str(problem)
        raise SinkUnavailable(f"{self.uri} was written to by other processes at every attempt", detail=reason[:200])

    def drop(self, ids: Sequence[str]) -> int:
        known = self.read().filter(pl.col("id").is_in(ids))["id"].to_list()
        for start in range(0, len(known), _AT_ONCE):
            which = ", ".join("'" + each.replace("'", "''") + "'" for each in known[start : start + _AT_ONCE])
            log = DeltaLog(self.uri, self.options)
            with log.sink_errors():
                log.table.delete(f"id IN ({which})")
        return len(known)

    def close(self) -> None:
        pass

    def _read_notes(self) -> RedriveNotes:
        notes = RedriveNotes()
        rows = self._rows(f"{self.uri}_notes")
        for note in rows.sort("number").iter_rows(named=True) if rows.height else ():
            notes.apply(note)
        return notes

    def _commit_note(self, notes: RedriveNotes, kind: str, redrive: Redrive, letters: Sequence[str]) -> None:
        """Commit one more note, if there are no newer ones."""
        note = {
            "number": notes.number + 1, "kind": kind, "redrive": redrive.id, "letters": json.dumps([*letters]),
            "before": json.dumps(redrive.before),
        }  # fmt: skip
        log = DeltaLog(f"{self.uri}_notes", self.options)
        log.commit_after(_NOTES, notes.number, append_rows(pl.DataFrame([note]), self.options))

    def _rows(self, uri: str) -> pl.DataFrame:
        library = delta_library()
        if not library.DeltaTable.is_deltatable(uri, dict(self.options)):
            return pl.DataFrame()
        log = DeltaLog(uri, self.options)
        with log.sink_errors():
            found = pl.from_arrow(log.table.to_pyarrow_table())
        return found if isinstance(found, pl.DataFrame) else found.to_frame()
