"""An envelope as JSON: for files with a letter a line, and for topics with a letter a record."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from strandline.errors import StateError
from strandline.kernel.dead_letters import PUBLIC
from strandline.letters.store import TIMES

VERSION: Final = 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_json(letter: Mapping[str, Any]) -> bytes:
    """A letter, with whatever else is known of it. Bytes that are no text are told in base64."""
    told: dict[str, Any] = {"envelope": VERSION, **letter}
    raw = told.get("raw")
    if raw is not None:
        try:
            told["raw"] = raw.decode()
        except UnicodeDecodeError:
            del told["raw"]
            told["raw_base64"] = b64encode(raw).decode()
    for name in TIMES:
        if told.get(name) is not None:
            told[name] = _moment(told[name])
    return json.dumps(told, ensure_ascii=False).encode()


def from_json(value: bytes, where: str) -> dict[str, Any]:
    """A letter as it was written, fields that are not known here too."""
    try:
        told: dict[str, Any] = json.loads(value)
        version = int(told.pop("envelope"))
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise StateError(f"{where} is no dead letter", detail=str(problem)[:200]) from None
    if version > VERSION:
        raise StateError(f"{where} is written by a newer Strandline", detail=f"envelope {version}", hint="upgrade")
    raw, coded = told.pop("raw", None), told.pop("raw_base64", None)
    told["raw"] = b64decode(coded) if coded is not None else None if raw is None else raw.encode()
    for name in TIMES:
        if isinstance(told.get(name), str):
            told[name] = (datetime.fromisoformat(told[name]) - _EPOCH) // timedelta(milliseconds=1)
    return {**dict.fromkeys(PUBLIC), **told}


def instant(ms: int) -> str:
    """A time as ISO 8601; outside of the calendar's years, in milliseconds."""
    return str(_moment(ms))


def _moment(ms: int) -> str | int:
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return ms
