"""Order values of all types."""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from strandline.model.elements import Element

Rank = tuple[Any, ...]
"""The sort key and identity of a value. Unlike Python's equality it distinguishes True from 1."""


def rank(value: Any) -> Rank:
    """Order: null, booleans, numbers (NaN greatest), texts, bytes, times, lists, mappings, anything else."""
    match value:
        case None:
            return (0,)
        case bool():
            return (1, value)
        case float() if math.isnan(value):
            return (2, 1, 0)
        case int() | float():
            return (2, 0, value)
        case str():
            return (3, value)
        case bytes():
            return (4, value)
        case datetime():
            return (5, 0, (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
        case date():
            return (5, 1, value.toordinal())
        case list() | tuple():
            return (6, tuple(rank(each) for each in value))
        case Mapping():
            return (7, tuple(sorted((rank(name), rank(each)) for name, each in value.items())))
        case _ if hasattr(value, "__float__"):
            return (2, 1, 0) if value != value else (2, 0, value)  # noqa: PLR0124 - only NaN differs from itself
    return (8, type(value).__name__, repr(value))


def position(element: Element) -> Rank:
    """Return the default order of elements: event time, then source position, then the whole row."""
    return (element.at.ms, element.input, element.partition, element.offset, rank(element.columns))
