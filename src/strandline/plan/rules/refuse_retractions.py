"""Refuse retractions where they are not understood."""

from strandline.errors import InvalidStep
from strandline.plan.lineage import strands_to
from strandline.plan.nodes import KeyedNode, Root, outputs_of, walk


def refuse_retractions(root: Root) -> Root:
    """Check that sinks and operators can take the retractions that they get."""
    for write in outputs_of(root):
        for strand in strands_to(write.of):
            step = strand.origin
            if isinstance(step, KeyedNode) and step.takes_back and not write.sink.takes_retractions:
                raise InvalidStep(
                    f"{write.sink.name} cannot take retractions, and {step.name} sends them",
                    hint="accumulate(accumulating), or another sink",
                )
    for node in walk(root):
        if isinstance(node, KeyedNode):
            origins = [strand.origin for stream in node.inputs for strand in strands_to(stream)]
            retracting = [step for step in origins if isinstance(step, KeyedNode) and step.takes_back]
            if retracting:
                node.plan.refuse_retractions(node.name, retracting[0].name)
    return root
