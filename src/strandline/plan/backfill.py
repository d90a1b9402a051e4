"""History before a topic: every place where a pipeline reads the topic reads both, each its own side of the cut."""

from dataclasses import replace

from strandline.errors import InvalidStep
from strandline.plan.endpoints import Source
from strandline.plan.nodes import EventTime, Node, Read, Root, Together, Union, Within, Write, walk, with_inputs


def sources_of(root: Node | Together) -> tuple[Source, ...]:
    """What a pipeline reads."""
    return tuple(dict.fromkeys(node.source for node in walk(root) if isinstance(node, Read)))


def backfilled(root: Root, history: Source, topic: Source, cut: int | None) -> Root:
    """The pipeline over both. With a cut in event time, in milliseconds, history is read before it and the topic from
    it on; without one, all of history and all that is read of the topic."""
    if isinstance(root, Together):
        return Together(tuple(_written(each, history, topic, cut) for each in root.outputs))
    return _written(root, history, topic, cut)


def _written(write: Write, history: Source, topic: Source, cut: int | None) -> Write:
    return replace(write, of=_both(write.of, history, topic, cut))


def _both(node: Node, history: Source, topic: Source, cut: int | None) -> Node:
    match node:
        case Read(source) if source == topic and cut is None:
            return Union((Read(history), node))
        case Read(source) if source == topic:
            raise InvalidStep(
                "a cut in event time needs an event time",
                hint="say event_time(…) before elements are written, or cut at offsets",
            )
        case Read():
            return node
        case EventTime(of, column, _) if cut is not None and topic in sources_of(of):
            if column is None:
                raise InvalidStep(
                    "time is the clock's here, and has no cut", hint="say event_time(…), or cut at offsets"
                )
            if sources_of(of) != (topic,):
                raise InvalidStep(
                    "the event time is said of a union, of which only a part has a history",
                    hint="say event_time(…) of each stream before the union",
                )
            past = replace(node, of=_instead(of, history))
            return Union((Within(past, end=cut), Within(node, start=cut)))
        case _:
            return with_inputs(node, lambda each: _both(each, history, topic, cut))


def _instead(node: Node, source: Source) -> Node:
    """The same steps over another source."""
    match node:
        case Read():
            return Read(source)
        case _:
            return with_inputs(node, lambda each: _instead(each, source))
