"""Rewrite a pipeline for a replay: the same steps over rewound sources, into another sink."""

from collections.abc import Callable
from dataclasses import replace

from strandline.errors import InvalidStep
from strandline.plan.endpoints import Sink, Source
from strandline.plan.nodes import EventTime, KeyedNode, Node, Read, Root, Within, Write, outputs_of, walk, with_inputs


def replayed(root: Root, rewound: Callable[[Source], Source], sink: Sink, since: int | None) -> Write:
    """Return the pipeline over rewound sources and with another sink. With `since`, only elements from that time on."""
    (write,) = outputs_of(root)
    if since is not None:
        _refuse_partial(write)
    return replace(write, of=_rewound(write.of, rewound, since), sink=sink)


def only_output(root: Root) -> Write:
    """Return the only output of a pipeline; raise if it has several, or no panes to compare two versions by."""
    writes = outputs_of(root)
    if len(writes) > 1:
        raise InvalidStep(
            "a replay needs a pipeline with one output",
            detail=f"this one has {len(writes)}",
            hint="replay one each",
        )
    steps = [node for node in walk(writes[0]) if isinstance(node, KeyedNode)]
    if not steps:
        raise InvalidStep("there are no panes to compare", hint="replay a pipeline with a keyed step")
    if any(isinstance(node, EventTime) and node.column is None for node in walk(writes[0])):
        raise InvalidStep("a replay of processing time would give other rows", hint="use event_time(…)")
    return writes[0]


def _refuse_partial(write: Write) -> None:
    """Raise if a window from the start time on could miss elements from before it."""
    steps = [node for node in walk(write) if isinstance(node, KeyedNode)]
    if len(steps) > 1:
        raise InvalidStep(
            "a step over panes would miss the panes before the start of the replay",
            hint="replay from the beginning: --from earliest",
        )
    if not steps[0].plan.has_fixed_windows:
        raise InvalidStep(
            "windows without fixed bounds may begin before the start of the replay",
            hint="replay from the beginning: --from earliest",
        )


def _rewound(node: Node, rewound: Callable[[Source], Source], since: int | None) -> Node:
    match node:
        case Read(source):
            return Read(rewound(source))
        case EventTime(of) if since is not None:
            return Within(replace(node, of=_rewound(of, rewound, since)), start=since)
        case _:
            return with_inputs(node, lambda each: _rewound(each, rewound, since))
