"""The letters of jobs as their stores keep them: read, searched, sent back."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.sql.sqlite import sqlite
from strandline.dashboard import api_types
from strandline.dashboard.dead_letter_queries import Asked, LetterGone, Opened
from strandline.dashboard.graph import About, written_to
from strandline.errors import SetupError
from strandline.letters.envelope_json import time_text
from strandline.letters.redrive import redrive
from strandline.letters.store import NEW

FRESH_SECONDS: Final = 2.0
"""For so long letters that were read are shown again."""
MOST_RAW: Final = 64 * 1024
_SHORT: Final = 160
_SEARCHED: Final = ("id", "reason", "detail", "step", "source", "source_partition", "exception")


class Stores:
    """The letters of every job. One redrive at a time."""

    def __init__(self, open_pipeline: Callable[[Path], Opened | None]) -> None:
        self._open_pipeline = open_pipeline
        self._read: dict[Path, tuple[float, pl.DataFrame]] = {}
        self._lock = threading.Lock()

    def letters(self, folder: Path, known: About, asked: Asked) -> api_types.Letters:
        """A page of letters, newest first."""
        opened = self._opened(folder, known)
        if isinstance(opened, str):
            return api_types.Letters(False, False, opened, 0, 0, {}, ())
        every = self._letters(folder, opened)
        found = _matching(every, asked)
        hint = "" if opened.sources else _NO_WAY_BACK
        return api_types.Letters(
            True,
            bool(opened.sources),
            hint,
            every.height,
            found.height,
            dict(Counter(str(reason) for reason in every["reason"]).most_common(50)),
            tuple(_line(letter) for letter in found.reverse().head(asked.limit).iter_rows(named=True)),
        )

    def letter(self, folder: Path, known: About, id_: str) -> api_types.LetterWhole:
        """One letter with all that is known of it."""
        opened = self._opened(folder, known)
        found = None if isinstance(opened, str) else self._letters(folder, opened).filter(pl.col("id") == id_)
        if found is None or found.is_empty():
            raise LetterGone("there is no such letter", hint="it may have been dropped since the page was made")
        letter = found.row(0, named=True)
        raw = letter.pop("raw") or b""
        fields = {name: _told(name, value) for name, value in letter.items() if value is not None}
        try:
            return api_types.LetterWhole(fields, raw.decode()[:MOST_RAW], True)
        except UnicodeDecodeError:
            return api_types.LetterWhole(fields, raw[:MOST_RAW].hex(" "), False)

    def redrive(self, folder: Path, known: About, ids: Sequence[str]) -> api_types.Redriven:
        """Sends the records of these letters back to where they came from, each once, as `strandline dlq` does."""
        opened = self._opened(folder, known)
        if isinstance(opened, str):
            raise SetupError("the letters of this job cannot be asked for", hint=opened)
        if not opened.sources:
            raise SetupError("the way back is not known", hint=_NO_WAY_BACK)
        with self._lock:
            reports = [redrive(store, opened.sources, ids) for store in opened.stores]
            self._read.pop(folder, None)
        left = {id_: why for report in reports for id_, why in report.left.items()}
        sent = [each for report in reports for each in report.sent]
        known_ids = {*sent, *left, *(each for report in reports for each in report.completed)}
        left |= {id_: "there is no such letter" for id_ in ids if id_ not in known_ids}
        return api_types.Redriven(tuple(sent), tuple(each for report in reports for each in report.completed), left)

    def _opened(self, folder: Path, known: About) -> Opened | str:
        """The stores, by the pipeline if it is known; else those that the definition names; else why there is none."""
        opened = self._open_pipeline(folder)
        if opened is not None:
            return opened
        tables = [
            sqlite(str(sink["path"]), table=_table(sink)).letters()
            for sink in written_to(known)
            if sink.get("is") == "Sqlite" and Path(str(sink.get("path"))).is_file() and _table(sink)
        ]
        return Opened(tables) if tables else _NOT_KNOWN

    def _letters(self, folder: Path, opened: Opened) -> pl.DataFrame:
        at, found = self._read.get(folder, (0.0, None))
        if found is None or time.monotonic() - at > FRESH_SECONDS:
            found = pl.concat([store.read() for store in opened.stores]).sort("first_seen", "id")
            self._read[folder] = (time.monotonic(), found)
        return found


_NOT_KNOWN: Final = (
    "Its dead letters are where its pipeline says. Start the job with `strandline run FILE.py:NAME`, or this dashboard "
    "with --pipeline FILE.py:NAME, and they are shown here."
)
_NO_WAY_BACK: Final = (
    "To send letters back, the pipeline must be known: start this dashboard with --pipeline FILE.py:NAME."
)


def _table(sink: Mapping[str, Any]) -> str:
    return str(sink.get("table") or "")


def _matching(letters: pl.DataFrame, asked: Asked) -> pl.DataFrame:
    for name in ("reason", "state"):
        if wanted := getattr(asked, name):
            letters = letters.filter(pl.col(name) == wanted)
    if not asked.search:
        return letters
    text = asked.search.lower()
    hits = [pl.col(name).str.to_lowercase().str.contains(text, literal=True).fill_null(False) for name in _SEARCHED]
    raw = pl.Series([text.encode() in (each or b"").lower() for each in letters["raw"]], dtype=pl.Boolean)
    return letters.filter(pl.any_horizontal(*hits, raw))


def _line(letter: Mapping[str, Any]) -> api_types.Letter:
    place = "" if letter["source_partition"] is None else f"{letter['source_partition']}:{letter['source_offset']}"
    reason, step, source = (str(letter[name] or "") for name in ("reason", "step", "source"))
    id_, state, detail = str(letter["id"]), str(letter["state"] or NEW), str(letter["detail"] or "")[:_SHORT]
    return api_types.Letter(id_, letter["first_seen"], reason, step, source, place, state, detail)


def _told(name: str, value: Any) -> str:
    return str(time_text(value)) if name in ("first_seen", "event_time") else str(value)
