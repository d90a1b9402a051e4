"""How rows come to where they are used: from a source or a keyed step, with what is done to them on the way."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from strandline.errors import InvalidStep
from strandline.plan.nodes import EventTime, KeyedNode, Node, Read, Stateless, Union, Within, Write
from strandline.plan.stateless_operations import Operation


@dataclass(frozen=True, slots=True)
class Strand:
    """From where, what is done before time is known, what time is, and what is done after that."""

    origin: Read | KeyedNode
    before: tuple[Operation, ...] = ()
    time: EventTime | None = None
    after: tuple[Operation, ...] = ()
    within: Within | None = None
    """The span that its elements are taken from; None: all time."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (*self.before, *self.after)


def strands_to(node: Node) -> Iterator[Strand]:
    """Every way on which rows reach the end of this node; a union has as many as it has streams."""
    match node:
        case Read() | KeyedNode():
            yield Strand(node)
        case Union(streams):
            for stream in streams:
                yield from strands_to(stream)
        case Stateless(of, operation):
            for strand in strands_to(of):
                yield _followed(strand, operation)
        case EventTime(of):
            for strand in strands_to(of):
                yield _timed(strand, node)
        case Within(of):
            for strand in strands_to(of):
                yield replace(strand, within=node)
        case Write(of):
            yield from strands_to(of)


def _followed(strand: Strand, operation: Operation) -> Strand:
    if strand.time is None and isinstance(strand.origin, Read):
        return replace(strand, before=(*strand.before, operation))
    return replace(strand, after=(*strand.after, operation))


def _timed(strand: Strand, time: EventTime) -> Strand:
    if isinstance(strand.origin, KeyedNode):
        raise InvalidStep(
            "panes have a time already: that of their windows",
            hint="leave event_time out; stamp_panes says which of a window's times its panes carry",
        )
    if strand.time is not None:
        raise InvalidStep("the event time is said twice", hint="say it once")
    return replace(strand, time=time)
