"""Read, search and redrive the dead letters of jobs in their stores."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.sql.sqlite import sqlite
from strandline.dashboard import api_types
from strandline.dashboard.dead_letter_queries import LetterNotFound, LetterQuery, OpenedLetters
from strandline.dashboard.graph import JobDefinition, sinks_in
from strandline.errors import SetupError
from strandline.letters.envelope_json import time_text
from strandline.letters.redrive import redrive
from strandline.letters.store import KEPT, NEW, LetterStore, pages_of

FRESH_SECONDS: Final = 2.0
"""Seconds for which letters are cached."""
MOST_RAW: Final = 64 * 1024
_SHORT: Final = 160
_SEARCHED: Final = ("id", "reason", "detail", "step", "source", "source_partition", "exception")


class LetterReader:
    """The letters of every job. Only one redrive runs at a time."""

    def __init__(self, open_pipeline: Callable[[Path], OpenedLetters | None]) -> None:
        self._open_pipeline = open_pipeline
        self._read: dict[Path, tuple[float, LetterQuery | None, _Found | None]] = {}
        self._lock = threading.Lock()

    def letters(self, folder: Path, known: JobDefinition, query: LetterQuery) -> api_types.Letters:
        """A page of letters, newest first."""
        opened = self._open(folder, known)
        if isinstance(opened, str):
            return api_types.Letters(False, False, opened, 0, 0, {}, ())
        found = self._found(folder, opened, query)
        hint = "" if opened.sources else _NO_SOURCES
        return api_types.Letters(
            True,
            bool(opened.sources),
            hint,
            found.letters,
            found.matching,
            dict(found.reasons.most_common(50)),
            tuple(_summary(letter) for letter in found.newest.reverse().iter_rows(named=True)),
        )

    def letter(self, folder: Path, known: JobDefinition, id_: str) -> api_types.LetterWhole:
        """One letter with all its fields."""
        opened = self._open(folder, known)
        stores = () if isinstance(opened, str) else opened.stores
        pages = (page for store in stores for page in pages_of(store, id_=id_))
        found = next((page for page in pages if page.height), None)
        if found is None:
            raise LetterNotFound("there is no such letter", hint="it may have been dropped since the page was loaded")
        letter = found.row(0, named=True)
        raw = letter.pop("raw") or b""
        fields = {name: _field_text(name, value) for name, value in letter.items() if value is not None}
        try:
            return api_types.LetterWhole(fields, raw.decode()[:MOST_RAW], True)
        except UnicodeDecodeError:
            return api_types.LetterWhole(fields, raw[:MOST_RAW].hex(" "), False)

    def redrive(self, folder: Path, known: JobDefinition, ids: Sequence[str]) -> api_types.Redriven:
        """Redrive these letters to their sources, each record once, as `strandline dlq` does."""
        opened = self._open(folder, known)
        if isinstance(opened, str):
            raise SetupError("the letters of this job cannot be read", hint=opened)
        if not opened.sources:
            raise SetupError("the job's sources are not known", hint=_NO_SOURCES)
        with self._lock:
            reports = [redrive(store, opened.sources, ids) for store in opened.stores]
            self._read.clear()
        left = {id_: why for report in reports for id_, why in report.left.items()}
        sent = [each for report in reports for each in report.sent]
        known_ids = {*sent, *left, *(each for report in reports for each in report.completed)}
        left |= {id_: "there is no such letter" for id_ in ids if id_ not in known_ids}
        return api_types.Redriven(tuple(sent), tuple(each for report in reports for each in report.completed), left)

    def _open(self, folder: Path, known: JobDefinition) -> OpenedLetters | str:
        """The stores of the pipeline if it is known, or else those in the job's definition, or else why there are
        none."""
        opened = self._open_pipeline(folder)
        if opened is not None:
            return opened
        tables = [
            sqlite(path, table=table).letters()
            for sink in sinks_in(known)
            if sink.get("is") == "Sqlite" and (table := _table(sink)) and (path := _own_file(folder, sink))
        ]
        return OpenedLetters(tables) if tables else _NO_PIPELINE

    def _found(self, folder: Path, opened: OpenedLetters, query: LetterQuery) -> "_Found":
        at, known, found = self._read.get(folder, (0.0, None, None))
        if found is None or known != query or time.monotonic() - at > FRESH_SECONDS:
            found = _search(opened.stores, query)
            self._read[folder] = (time.monotonic(), query, found)
        return found


@dataclass(slots=True)
class _Found:
    """The newest letters that match a query, and counts of all."""

    newest: pl.DataFrame
    letters: int = 0
    matching: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


def _search(stores: Sequence[LetterStore], query: LetterQuery) -> _Found:
    """Look at every letter, one page at a time, and hold the newest ones only."""
    found = _Found(pl.DataFrame(schema=KEPT).drop("raw"))
    for page in (page for store in stores for page in pages_of(store, raw=bool(query.search))):
        matching = _filter(page, query).drop("raw")
        found.letters, found.matching = found.letters + page.height, found.matching + matching.height
        found.reasons.update(map(str, page["reason"]))
        found.newest = pl.concat([found.newest, matching]).sort("first_seen", "id").tail(query.limit)
    return found


def _own_file(folder: Path, sink: Mapping[str, Any]) -> str | None:
    """Return the file that a job's folder names, if it lies in that folder or beside it.

    The folder may come from elsewhere, and must not make this dashboard open other files of its user.
    """
    named = sink.get("path")
    if not isinstance(named, str) or not named or "\0" in named:
        return None
    path, own = Path(named).resolve(), folder.resolve()
    is_near = path.is_relative_to(own) or path.parent == own.parent
    return str(path) if is_near and path.is_file() else None


_NO_PIPELINE: Final = (
    "The pipeline defines where its dead letters are, and without it only files in the job's folder or beside it are "
    "opened. To show them here, start the job with "
    "`strandline run FILE.py:NAME`, or this dashboard with --pipeline FILE.py:NAME."
)
_NO_SOURCES: Final = "To redrive letters, start this dashboard with --pipeline FILE.py:NAME."


def _table(sink: Mapping[str, Any]) -> str:
    return str(sink.get("table") or "")


def _filter(letters: pl.DataFrame, query: LetterQuery) -> pl.DataFrame:
    for name in ("reason", "state"):
        if wanted := getattr(query, name):
            letters = letters.filter(pl.col(name) == wanted)
    if not query.search:
        return letters
    text = query.search.lower()
    hits = [pl.col(name).str.to_lowercase().str.contains(text, literal=True).fill_null(False) for name in _SEARCHED]
    raw = pl.Series([text.encode() in (each or b"").lower() for each in letters["raw"]], dtype=pl.Boolean)
    return letters.filter(pl.any_horizontal(*hits, raw))


def _summary(letter: Mapping[str, Any]) -> api_types.Letter:
    place = "" if letter["source_partition"] is None else f"{letter['source_partition']}:{letter['source_offset']}"
    reason, step, source = (str(letter[name] or "") for name in ("reason", "step", "source"))
    id_, state, detail = str(letter["id"]), str(letter["state"] or NEW), str(letter["detail"] or "")[:_SHORT]
    return api_types.Letter(id_, letter["first_seen"], reason, step, source, place, state, detail)


def _field_text(name: str, value: Any) -> str:
    return str(time_text(value)) if name in ("first_seen", "event_time") else str(value)
