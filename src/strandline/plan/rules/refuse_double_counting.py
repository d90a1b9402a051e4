"""Refuse to aggregate panes that repeat what earlier panes held: they would be counted twice."""

from strandline.errors import InvalidStep
from strandline.plan.lineage import strands_to
from strandline.plan.nodes import KeyedNode, Root, walk
from strandline.plan.operators.contract import Accepted


def refuse_double_counting(root: Root) -> Root:
    """Refuse an operator over accumulating panes, unless each window has one pane or the author accepts it."""
    for node in walk(root):
        if isinstance(node, KeyedNode) and Accepted.REPEATED not in node.accepted:
            for strand in (strand for stream in node.inputs for strand in strands_to(stream)):
                before = strand.origin
                if isinstance(before, KeyedNode) and before.plan.repeats:
                    raise InvalidStep(
                        f"{node.name} would count twice: each pane of {before.name} holds what those before it held",
                        hint="let that step be retracting or discarding, or say key_by(…, even_repeated=True)",
                    )
    return root
