"""Refuse a keyed operator over elements without event time or processing time."""

from strandline.errors import InvalidStep
from strandline.plan.lineage import paths_to
from strandline.plan.nodes import KeyedNode, Read, Root, walk


def refuse_missing_time(root: Root) -> Root:
    """Check that every path to a keyed operator assigns event time or processing time."""
    for node in walk(root):
        if isinstance(node, KeyedNode):
            for path in (path for stream in node.inputs for path in paths_to(stream)):
                if isinstance(path.origin, Read) and path.time is None:
                    raise InvalidStep(
                        f"the elements of {path.origin.source.name} have no time, and {node.name} needs one",
                        hint="call event_time(column, watermark) or processing_time() before key_by",
                    )
    return root
