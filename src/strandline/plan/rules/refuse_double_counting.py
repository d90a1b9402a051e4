"""Refuse to aggregate accumulating panes, whose elements would be counted twice."""

from strandline.errors import InvalidStep
from strandline.plan.lineage import paths_to
from strandline.plan.nodes import KeyedNode, Root, walk
from strandline.plan.operators.contract import Accepted


def refuse_double_counting(root: Root) -> Root:
    """Refuse an operator over accumulating panes, unless each window has one pane or the author accepts it."""
    for node in walk(root):
        if isinstance(node, KeyedNode) and Accepted.REPEATED not in node.accepted:
            for path in (path for stream in node.inputs for path in paths_to(stream)):
                before = path.origin
                if isinstance(before, KeyedNode) and before.plan.repeats:
                    raise InvalidStep(
                        f"{node.name} would count elements twice: panes of {before.name} repeat earlier panes",
                        hint="make that step retracting or discarding, or accept it with key_by(…, even_repeated=True)",
                    )
    return root
