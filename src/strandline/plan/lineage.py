"""Find the paths on which rows reach a node: from a source or a keyed step, through stateless operations."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from strandline.errors import InvalidStep
from strandline.plan.nodes import EventTime, KeyedNode, Node, Read, Stateless, Union, Within, Write
from strandline.plan.stateless_operations import Operation


@dataclass(frozen=True, slots=True)
class LineagePath:
    """A path of rows: its origin, the operations before the event time, the event time, the operations after it."""

    origin: Read | KeyedNode
    before: tuple[Operation, ...] = ()
    time: EventTime | None = None
    after: tuple[Operation, ...] = ()
    within: Within | None = None
    """The span of event time that elements are read from; None for all time."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (*self.before, *self.after)


def paths_to(node: Node) -> Iterator[LineagePath]:
    """Yield every path on which rows reach a node; a union yields the paths of all its streams."""
    match node:
        case Read() | KeyedNode():
            yield LineagePath(node)
        case Union(streams):
            for stream in streams:
                yield from paths_to(stream)
        case Stateless(of, operation):
            for path in paths_to(of):
                yield _with_operation(path, operation)
        case EventTime(of):
            for path in paths_to(of):
                yield _with_time(path, node)
        case Within(of):
            for path in paths_to(of):
                yield replace(path, within=node)
        case Write(of):
            yield from paths_to(of)


def _with_operation(path: LineagePath, operation: Operation) -> LineagePath:
    if path.time is None and isinstance(path.origin, Read):
        return replace(path, before=(*path.before, operation))
    return replace(path, after=(*path.after, operation))


def _with_time(path: LineagePath, time: EventTime) -> LineagePath:
    if isinstance(path.origin, KeyedNode):
        raise InvalidStep(
            "panes have a time already: the end of their window, or what stamp_panes(…) chooses",
            hint="leave event_time(…) out, or choose another timestamp with stamp_panes(…)",
        )
    if path.time is not None:
        raise InvalidStep("event_time(…) is called twice on one stream", hint="call it once")
    return replace(path, time=time)
