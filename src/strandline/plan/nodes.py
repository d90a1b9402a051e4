"""The steps of a pipeline, one frozen node a step, each holding the steps before it."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

from strandline.model.steps import WindowedStep
from strandline.model.watermarks import Watermark
from strandline.plan.endpoints import DeadLetters, Delivery, Sink, Source
from strandline.plan.stateless_operations import Operation


@dataclass(frozen=True, slots=True)
class Read:
    """The elements of a source."""

    source: Source


@dataclass(frozen=True, slots=True)
class Stateless:
    """Rows, each looked at alone: elements, or panes."""

    of: "Node"
    operation: Operation


@dataclass(frozen=True, slots=True)
class Union:
    """The elements of several streams as one; each brings its own watermark."""

    streams: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class EventTime:
    """Elements with a time of their own, and a watermark over it; without a column, their time is the clock's."""

    of: "Node"
    column: str | None
    watermark: Watermark


@dataclass(frozen=True, slots=True)
class Within:
    """Elements whose time lies in a span, in milliseconds; those that have no time pass, to be told of."""

    of: "Node"
    start: int | None = None
    end: int | None = None


class Accepted(StrEnum):
    """What is refused unless its author says that it is meant."""

    REPEATED = "repeated"
    """Panes that repeat each other are aggregated again."""
    FOR_EVER = "for_ever"
    """State is kept for every key that was ever seen."""
    CLOSING = "closing"
    """Windows close before their lateness is over."""


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Panes: elements by key, through a windowed step."""

    of: "Node"
    keys: tuple[str, ...]
    step: WindowedStep
    accepted: frozenset[Accepted] = frozenset()
    rest: Sink | None = None
    """Where late elements go, if not with the panes."""

    @property
    def name(self) -> str:
        """How an error speaks of it."""
        return f"{', '.join(name for name, _ in self.step.aggregates)} by {', '.join(self.keys)}"


@dataclass(frozen=True, slots=True)
class Write:
    """Rows, late elements and dead letters on their way out."""

    of: "Node"
    sink: Sink
    delivery: Delivery
    # Another place for dead letters does not make it another job, so a checkpoint does not mind.
    dead: DeadLetters | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Together:
    """Several outputs that run as one job."""

    outputs: tuple[Write, ...]


Node = Read | Stateless | Union | EventTime | Within | Aggregated | Write
Root = Write | Together


def outputs_of(root: Root) -> tuple[Write, ...]:
    """What a pipeline writes, in order."""
    return root.outputs if isinstance(root, Together) else (root,)


def before(node: Node) -> tuple[Node, ...]:
    """The nodes that a node takes its rows from."""
    match node:
        case Read():
            return ()
        case Union(streams):
            return streams
        case _:
            return (node.of,)


def walk(root: Node | Together) -> Iterator[Node]:
    """Every node of a pipeline once, sources first."""
    seen = set[Node]()
    for node in _walk(root):
        if node not in seen:
            seen.add(node)
            yield node


def _walk(root: Node | Together) -> Iterator[Node]:
    nodes: tuple[Node, ...] = root.outputs if isinstance(root, Together) else before(root)
    for node in nodes:
        yield from _walk(node)
    if not isinstance(root, Together):
        yield root


def fingerprint(root: Node | Together) -> str:
    """The same for pipelines that mean the same, whatever the process and the day."""
    return hashlib.sha256(json.dumps(to_plain(root), sort_keys=True).encode()).hexdigest()


def to_plain(value: Any) -> Any:
    """A value as JSON: what it is called, and what it holds; or what it says makes it the same to a checkpoint."""
    if hasattr(value, "definition") and not isinstance(value, type):
        return {"is": type(value).__name__, **{name: to_plain(each) for name, each in value.definition.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {each.name: to_plain(getattr(value, each.name)) for each in dataclasses.fields(value) if each.compare}
        return {"is": type(value).__name__, **held}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [to_plain(each) for each in value]
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
    return sorted((to_plain(each) for each in values), key=json.dumps)
