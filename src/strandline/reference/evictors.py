"""Evict elements from a window at a firing."""

from collections.abc import Mapping
from typing import Any, assert_never

from strandline.model.evictors import Evictor, KeepDelta, KeepLast, KeepWithin, Moment
from strandline.reference.expressions import evaluate
from strandline.reference.state import Arrived


def kept(evictor: Evictor | None, moment: Moment, contents: tuple[Arrived, ...]) -> tuple[Arrived, ...]:
    """Return a window's contents, in order of arrival, after the evictor has run if this is its moment."""
    if evictor is None or evictor.moment is not moment or not contents:
        return contents
    match evictor:
        case KeepLast(n):
            return contents[max(len(contents) - n, 0) :]
        case KeepWithin(length):
            newest = max(one.element.at for one in contents)
            return tuple(one for one in contents if one.element.at > newest - length)
        case KeepDelta():
            last = contents[-1].element.columns
            return tuple(one for one in contents if not _is_far(evictor, one.element.columns, last))
    assert_never(evictor)


def _is_far(evictor: KeepDelta, columns: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    distance = evaluate(evictor.distance, {"": columns, "last": last})
    return distance is not None and bool(distance >= evictor.bound)
