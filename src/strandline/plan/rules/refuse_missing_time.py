"""Refuse a keyed operator over elements without a time."""

from strandline.errors import InvalidStep
from strandline.plan.lineage import strands_to
from strandline.plan.nodes import KeyedNode, Read, Root, walk


def refuse_missing_time(root: Root) -> Root:
    """Check that every path to a keyed operator passes an event time, or the clock in its place."""
    for node in walk(root):
        if isinstance(node, KeyedNode):
            for strand in (strand for stream in node.inputs for strand in strands_to(stream)):
                if isinstance(strand.origin, Read) and strand.time is None:
                    raise InvalidStep(
                        f"the elements of {strand.origin.source.name} have no time, and {node.name} needs one",
                        hint="write event_time(column, watermark) before key_by, or processing_time()",
                    )
    return root
