"""Write state as JSON text and read it back: plain data with a version, never a pickle.

JSON values represent themselves. All others are objects with one member that names their kind; only the kinds listed
here can be written and read.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from strandline.errors import BrokenBlock, StateError
from strandline.model.elements import Duration, Element, Timestamp
from strandline.model.panes import Pane, Timing
from strandline.model.windows import Window
from strandline.reference.counts import CountState
from strandline.reference.deduplicate import DeduplicateState
from strandline.reference.interval_join import JoinState, WaitingRow
from strandline.reference.state import Arrived, KeyState, Open
from strandline.reference.table_join import TableJoinState
from strandline.reference.temporal_join import TemporalState, Version
from strandline.reference.triggers import TriggerState
from strandline.reference.watermarks import Partition, Progress

VERSION: Final = 1

_RECORDS: Final[Mapping[str, type]] = {
    kind.__name__: kind
    for kind in (
        Arrived, CountState, DeduplicateState, Duration, Element, JoinState, KeyState, Open, Pane, Partition, Progress,
        TableJoinState, TemporalState, Timestamp, TriggerState, Version, WaitingRow, Window,
    )
}  # fmt: skip
_ENUMS: Final[Mapping[str, type[Enum]]] = {kind.__name__: kind for kind in (Timing,)}


def write(kept: Mapping[str, Any]) -> str:
    """Return a snapshot as JSON text."""
    return json.dumps({"version": VERSION, "kept": to_json(kept)}, separators=(",", ":"))


def read(text: str) -> Any:
    """Return the contents of a snapshot."""
    try:
        snapshot = json.loads(text)
        version = snapshot["version"]
    except (ValueError, TypeError, KeyError) as problem:
        raise BrokenBlock("this is not a snapshot", detail=str(problem), hint="restore from an earlier one") from None
    if version != VERSION:
        raise BrokenBlock(f"a snapshot of version {version}", hint=f"this player reads version {VERSION}")
    return from_json(snapshot["kept"])


def to_json(value: Any) -> Any:
    """Convert a value to JSON."""
    match value:
        case Enum():
            return {"enum": [type(value).__name__, value.value]}
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [to_json(each) for each in value]
        case tuple():
            return {"tuple": [to_json(each) for each in value]}
        case Mapping():
            return {"map": [[to_json(name), to_json(each)] for name, each in value.items()]}
        case bytes():
            return {"bytes": b64encode(value).decode()}
        case datetime():
            return {"datetime": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case Decimal():
            return {"decimal": str(value)}
    if is_dataclass(value) and type(value).__name__ in _RECORDS:
        return {type(value).__name__: [to_json(getattr(value, each.name)) for each in fields(value)]}
    raise StateError(
        f"a {type(value).__name__} cannot be kept in a snapshot", detail=repr(value)[:80], hint="use plain values"
    )


def from_json(given: Any) -> Any:
    """Restore the value that `to_json` wrote."""
    if isinstance(given, list):
        return [from_json(each) for each in given]
    if not isinstance(given, dict):
        return given
    ((kind, inside),) = given.items()
    if kind in _RECORDS:
        return _RECORDS[kind](*(from_json(each) for each in inside))
    match kind:
        case "enum":
            return _ENUMS[inside[0]](inside[1])
        case "tuple":
            return tuple(from_json(each) for each in inside)
        case "map":
            return {from_json(name): from_json(each) for name, each in inside}
        case "bytes":
            return b64decode(inside)
        case "datetime":
            return datetime.fromisoformat(inside)
        case "date":
            return date.fromisoformat(inside)
        case "decimal":
            return Decimal(inside)
    raise BrokenBlock(f"the snapshot holds the unknown kind {kind!r}", hint="it was written by another version")
