"""A pipeline that is played again from its log into another table: the same steps, from a time on."""

from collections.abc import Callable
from dataclasses import replace

from strandline.errors import InvalidStep
from strandline.plan.endpoints import Sink, Source
from strandline.plan.nodes import EventTime, KeyedNode, Node, Read, Root, Within, Write, outputs_of, walk, with_inputs


def replayed(root: Root, rewound: Callable[[Source], Source], sink: Sink, since: int | None) -> Write:
    """The pipeline over sources that begin again, into another sink; with a time, only elements from then on."""
    (write,) = outputs_of(root)
    if since is not None:
        _refuse_partial(write)
    return replace(write, of=_again(write.of, rewound, since), sink=sink)


def only_output(root: Root) -> Write:
    """The output that a replay is made of; panes are what two versions can be compared by."""
    writes = outputs_of(root)
    if len(writes) > 1:
        raise InvalidStep(
            "a replay is of one output", detail=f"this pipeline has {len(writes)}", hint="replay one each"
        )
    steps = [node for node in walk(writes[0]) if isinstance(node, KeyedNode)]
    if not steps:
        raise InvalidStep("there are no panes to compare", hint="a replay is of a pipeline with a keyed step")
    if any(isinstance(node, EventTime) and node.column is None for node in walk(writes[0])):
        raise InvalidStep("time is the clock's here, and would be another in a replay", hint="say event_time(…)")
    return writes[0]


def _refuse_partial(write: Write) -> None:
    """From a time on, every window that starts then or later must be whole."""
    steps = [node for node in walk(write) if isinstance(node, KeyedNode)]
    if len(steps) > 1:
        raise InvalidStep(
            "windows over the panes of others would miss those before the time that is replayed from",
            hint="replay from the beginning: --from earliest",
        )
    if not steps[0].plan.has_fixed_windows:
        raise InvalidStep(
            "windows without fixed bounds may begin before the time that is replayed from",
            hint="replay from the beginning: --from earliest",
        )


def _again(node: Node, rewound: Callable[[Source], Source], since: int | None) -> Node:
    match node:
        case Read(source):
            return Read(rewound(source))
        case EventTime(of) if since is not None:
            return Within(replace(node, of=_again(of, rewound, since)), start=since)
        case _:
            return with_inputs(node, lambda each: _again(each, rewound, since))
