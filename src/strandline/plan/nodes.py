"""The steps of a pipeline, one frozen node a step, each holding the step before it."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Any

from strandline.model.steps import WindowedStep
from strandline.model.watermarks import Watermark
from strandline.plan.endpoints import Delivery, Sink, Source


@dataclass(frozen=True, slots=True)
class Read:
    """The elements of a source."""

    source: Source


@dataclass(frozen=True, slots=True)
class EventTime:
    """Elements with a time of their own, and a watermark over it; without a column, their time is the clock's."""

    of: "Node"
    column: str | None
    watermark: Watermark


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Panes: elements by key, through a windowed step."""

    of: "Node"
    keys: tuple[str, ...]
    step: WindowedStep


@dataclass(frozen=True, slots=True)
class Write:
    """Panes, late elements and dead letters on their way out."""

    of: "Node"
    sink: Sink
    delivery: Delivery


Node = Read | EventTime | Aggregated | Write


def walk(node: Node) -> Iterator[Node]:
    """Every node of a pipeline, the source first."""
    if not isinstance(node, Read):
        yield from walk(node.of)
    yield node


def fingerprint(node: Node) -> str:
    """The same for pipelines that mean the same, whatever the process and the day."""
    return hashlib.sha256(json.dumps(_plain(node), sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A value as JSON: what it is called, and what it holds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value) if each.compare}
        return {"is": type(value).__name__, **held}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {"is": "mapping", "of": _in_order([key, each] for key, each in value.items())}
    if isinstance(value, AbstractSet):
        return {"is": "set", "of": _in_order(value)}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    # A function's repr tells where it lies in memory, which is another place in the next process.
    return f"{value.__module__}.{value.__qualname__}" if callable(value) else repr(value)


def _in_order(values: Iterable[Any]) -> list[Any]:
    """What has no order of its own, in one that does not depend on the process."""
    return sorted((_plain(each) for each in values), key=json.dumps)
