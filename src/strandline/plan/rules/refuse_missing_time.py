"""A keyed step needs a time to put elements in windows by."""

from strandline.errors import InvalidStep
from strandline.plan.lineage import strands_to
from strandline.plan.nodes import Aggregated, Read, Root, walk


def refuse_timeless(root: Root) -> Root:
    """Every way to a keyed step passes an event time, or the clock in its place."""
    for node in walk(root):
        if isinstance(node, Aggregated):
            for strand in strands_to(node.of):
                if isinstance(strand.origin, Read) and strand.time is None:
                    raise InvalidStep(
                        f"the elements of {strand.origin.source.name} have no time, and {node.name} needs one",
                        hint="write event_time(column, watermark) before key_by, or processing_time()",
                    )
    return root
