"""Encode dead letter envelopes as JSON, for files with a letter per line and topics with a letter per record."""

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
    """Encode a letter with all of its fields. Bytes that are not UTF-8 become base64."""
    fields: dict[str, Any] = {"envelope": VERSION, **letter}
    raw = fields.get("raw")
    if raw is not None:
        try:
            fields["raw"] = raw.decode()
        except UnicodeDecodeError:
            del fields["raw"]
            fields["raw_base64"] = b64encode(raw).decode()
    for name in TIMES:
        if fields.get(name) is not None:
            fields[name] = _iso_text(fields[name])
    return json.dumps(fields, ensure_ascii=False).encode()


def from_json(value: bytes, where: str) -> dict[str, Any]:
    """Decode a letter, unknown fields included."""
    try:
        fields: dict[str, Any] = json.loads(value)
        version = int(fields.pop("envelope"))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as problem:
        raise StateError(f"{where} is not a dead letter", detail=str(problem)[:200]) from None
    if version > VERSION:
        raise StateError(f"{where} is written by a newer Strandline", detail=f"envelope {version}", hint="upgrade")
    try:
        raw, coded = fields.pop("raw", None), fields.pop("raw_base64", None)
        fields["raw"] = b64decode(coded) if coded is not None else None if raw is None else raw.encode()
        for name in TIMES:
            if isinstance(fields.get(name), str):
                fields[name] = (datetime.fromisoformat(fields[name]) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, TypeError, AttributeError, OverflowError) as problem:
        raise StateError(f"{where} is not a dead letter", detail=str(problem)[:200]) from None
    return {**dict.fromkeys(PUBLIC), **fields}


def time_text(ms: int) -> str:
    """Format a time as ISO 8601; as milliseconds if it is outside the calendar."""
    return str(_iso_text(ms))


def _iso_text(ms: int) -> str | int:
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return ms
