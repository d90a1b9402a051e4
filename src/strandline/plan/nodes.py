"""Define the nodes of a pipeline: frozen values, each holding its input nodes."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from strandline.model import ddl
from strandline.model.operators import Operator
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import Inputs, Watermark
from strandline.plan.endpoints import DeadLetters, Delivery, Sink, Source
from strandline.plan.operators import plan_of
from strandline.plan.operators.contract import INPUT, Accepted, Columns, OperatorPlan
from strandline.plan.stateless_operations import Operation, types_after


@dataclass(frozen=True, slots=True)
class Read:
    """Read the elements of a source."""

    source: Source

    @property
    def inputs(self) -> "tuple[Node, ...]":
        return ()

    @property
    def columns(self) -> Columns:
        return dict(self.source.types)

    @property
    def retracts(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Stateless:
    """Apply a stateless operation to each row, of a source or of an operator. Retractions pass like other rows."""

    of: "Node"
    operation: Operation

    @property
    def inputs(self) -> "tuple[Node, ...]":
        return (self.of,)

    @property
    def columns(self) -> Columns:
        return types_after(self.operation, self.of.columns, ddl.parse)

    @property
    def retracts(self) -> bool:
        return self.of.retracts


@dataclass(frozen=True, slots=True)
class Union:
    """Merge several streams; each keeps its own watermark."""

    streams: tuple["Node", ...]

    @property
    def inputs(self) -> "tuple[Node, ...]":
        return self.streams

    @property
    def columns(self) -> Columns:
        return self.streams[0].columns

    @property
    def retracts(self) -> bool:
        return any(stream.retracts for stream in self.streams)


@dataclass(frozen=True, slots=True)
class EventTime:
    """Assign an event time and a watermark to elements; without a column, processing time."""

    of: "Node"
    column: str | None
    watermark: Watermark | Inputs

    @property
    def inputs(self) -> "tuple[Node, ...]":
        return (self.of,)

    @property
    def columns(self) -> Columns:
        return self.of.columns

    @property
    def retracts(self) -> bool:
        return self.of.retracts


@dataclass(frozen=True, slots=True)
class Within:
    """Keep elements in a span of event time, in milliseconds. Elements without a time pass and become dead letters."""

    of: "Node"
    start: int | None = None
    end: int | None = None

    @property
    def inputs(self) -> "tuple[Node, ...]":
        return (self.of,)

    @property
    def columns(self) -> Columns:
        return self.of.columns

    @property
    def retracts(self) -> bool:
        return self.of.retracts


@dataclass(frozen=True, slots=True)
class KeyedInput:
    """One input of a keyed operator: its role, the stream, and the key columns there."""

    role: str
    of: "Node"
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyedNode:
    """Apply a keyed operator to inputs by role."""

    streams: tuple[KeyedInput, ...]
    operator: Operator
    accepted: frozenset[Accepted] = frozenset()
    late_sink: Sink | None = None
    """Sink of late elements, if they are not delivered with the rows."""
    inherited: frozenset[str] = field(default=frozenset(), compare=False)
    """Settings of the operator that follow from its input, because the author has not chosen them."""

    @property
    def inputs(self) -> "tuple[Node, ...]":
        return tuple(stream.of for stream in self.streams)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the key columns of its rows: those of its first input."""
        return self.streams[0].keys

    @property
    def plan(self) -> OperatorPlan:
        return plan_of(self.operator)

    @property
    def columns(self) -> Columns:
        return self.plan.columns({stream.role: stream.of.columns for stream in self.streams}, self.keys)

    @property
    def retracts(self) -> bool:
        return self.plan.retracts

    @property
    def name(self) -> str:
        """Return its name in error messages."""
        return self.plan.name(self.keys)

    @property
    def persisted(self) -> Mapping[str, Any]:
        """Return what checkpoints store. A windowed step keeps the layout from before operators had several inputs."""
        if isinstance(self.operator, WindowedStep):
            (only,) = self.streams
            return {
                "is": "Aggregated",
                "of": only.of,
                "keys": only.keys,
                "step": self.operator,
                "accepted": self.accepted,
                "rest": self.late_sink,
            }
        return {
            "is": "Keyed",
            "streams": self.streams,
            "operator": self.operator,
            "accepted": self.accepted,
            "rest": self.late_sink,
        }


def over(of: "Node", keys: tuple[str, ...], operator: Operator, **options: Any) -> KeyedNode:
    """Return a keyed node with one input."""
    return KeyedNode((KeyedInput(INPUT, of, keys),), operator, **options)


@dataclass(frozen=True, slots=True)
class Write:
    """Write rows, late elements and dead letters."""

    of: "Node"
    sink: Sink
    delivery: Delivery
    # Not part of the fingerprint: a job may move its dead letters and keep its checkpoint.
    dead: DeadLetters | None = field(default=None, compare=False)

    @property
    def inputs(self) -> "tuple[Node, ...]":
        return (self.of,)

    @property
    def columns(self) -> Columns:
        return self.of.columns

    @property
    def retracts(self) -> bool:
        return self.of.retracts


@dataclass(frozen=True, slots=True)
class Together:
    """Run several outputs as one job."""

    outputs: tuple[Write, ...]


Node = Read | Stateless | Union | EventTime | Within | KeyedNode | Write
Root = Write | Together


def with_inputs(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a node over changed inputs."""
    match node:
        case Read():
            return node
        case Union(streams):
            return Union(tuple(change(each) for each in streams))
        case KeyedNode(streams):
            return replace(node, streams=tuple(replace(each, of=change(each.of)) for each in streams))
        case _:
            return replace(node, of=change(node.of))


def outputs_of(root: Root) -> tuple[Write, ...]:
    """Return the outputs of a pipeline, in order."""
    return root.outputs if isinstance(root, Together) else (root,)


def walk(root: Node | Together) -> Iterator[Node]:
    """Yield every node of a pipeline once, sources first."""
    seen = set[Node]()
    for node in _walk(root):
        if node not in seen:
            seen.add(node)
            yield node


def _walk(root: Node | Together) -> Iterator[Node]:
    nodes: tuple[Node, ...] = root.outputs if isinstance(root, Together) else root.inputs
    for node in nodes:
        yield from _walk(node)
    if not isinstance(root, Together):
        yield root


def fingerprint(root: Node | Together) -> str:
    """Return a hash of a pipeline's definition. It is the same in every process."""
    return hashlib.sha256(json.dumps(to_plain(root), sort_keys=True).encode()).hexdigest()


def to_plain(value: Any) -> Any:
    """Convert a value to JSON: its class name and fields, or its `definition` if it has one. Checkpoints store this."""
    if isinstance(value, KeyedNode):
        return {name: to_plain(each) for name, each in value.persisted.items()}
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
    # The repr of a function has its memory address, which differs between processes.
    return f"{value.__module__}.{value.__qualname__}" if callable(value) else repr(value)


def _in_order(values: Iterable[Any]) -> list[Any]:
    """Sort unordered values, so that their order does not depend on the process."""
    return sorted((to_plain(each) for each in values), key=json.dumps)
