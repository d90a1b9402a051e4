"""Refuse retractions to sinks and operators that cannot process them."""

from strandline.errors import InvalidStep
from strandline.plan.lineage import paths_to
from strandline.plan.nodes import KeyedNode, Root, outputs_of, walk


def refuse_retractions(root: Root) -> Root:
    """Check that sinks and operators can process the retractions that they receive."""
    for write in outputs_of(root):
        for path in paths_to(write.of):
            step = path.origin
            if isinstance(step, KeyedNode) and step.retracts and not write.sink.takes_retractions:
                raise InvalidStep(
                    f"{write.sink.name} cannot take retractions, and {step.name} sends them",
                    hint="use accumulate(accumulating), or another sink",
                )
    for node in walk(root):
        if isinstance(node, KeyedNode):
            origins = [path.origin for stream in node.inputs for path in paths_to(stream)]
            retracting = [step for step in origins if isinstance(step, KeyedNode) and step.retracts]
            if retracting:
                node.plan.refuse_retractions(node.name, retracting[0].name)
    return root
