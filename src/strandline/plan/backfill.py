"""Rewrite a pipeline over a topic so that it reads history before a cut and the topic from the cut on."""

from dataclasses import replace

from strandline.errors import InvalidStep
from strandline.plan.endpoints import Source
from strandline.plan.nodes import EventTime, Node, Read, Root, Together, Union, Within, Write, walk, with_inputs


def sources_of(root: Node | Together) -> tuple[Source, ...]:
    """Return the sources of a pipeline, each once."""
    return tuple(dict.fromkeys(node.source for node in walk(root) if isinstance(node, Read)))


def backfilled(root: Root, history: Source, topic: Source, cut: int | None) -> Root:
    """Return the pipeline with the topic replaced by history and topic.

    With a cut in event time, in milliseconds, history is read before the cut and the topic from the cut on. Without a
    cut all elements of both are read.
    """
    if isinstance(root, Together):
        return Together(tuple(_backfilled_output(each, history, topic, cut) for each in root.outputs))
    return _backfilled_output(root, history, topic, cut)


def _backfilled_output(write: Write, history: Source, topic: Source, cut: int | None) -> Write:
    return replace(write, of=_with_history(write.of, history, topic, cut))


def _with_history(node: Node, history: Source, topic: Source, cut: int | None) -> Node:
    match node:
        case Read(source) if source == topic and cut is None:
            return Union((Read(history), node))
        case Read(source) if source == topic:
            raise InvalidStep(
                "a cut in event time needs elements with an event time",
                hint="call event_time(…) before write(…), or cut at offsets",
            )
        case Read():
            return node
        case EventTime(of, column, _) if cut is not None and topic in sources_of(of):
            if column is None:
                raise InvalidStep(
                    "a stream with processing_time() cannot be cut at an event time",
                    hint="call event_time(…), or cut at offsets",
                )
            if sources_of(of) != (topic,):
                raise InvalidStep(
                    "event_time(…) is called on a union, and only some of its streams have a history",
                    hint="call event_time(…) on each stream before the union",
                )
            before_cut = replace(node, of=_over(of, history))
            return Union((Within(before_cut, end=cut), Within(node, start=cut)))
        case _:
            return with_inputs(node, lambda each: _with_history(each, history, topic, cut))


def _over(node: Node, source: Source) -> Node:
    """Return the same steps over another source."""
    match node:
        case Read():
            return Read(source)
        case _:
            return with_inputs(node, lambda each: _over(each, source))
