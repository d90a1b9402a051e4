"""Refuse state that grows without bound, and triggers that close windows early, unless the author accepts it."""

from strandline.plan.nodes import KeyedNode, Read, Root, walk
from strandline.plan.operators.contract import Accepted


def refuse_unbounded_state(root: Root) -> Root:
    """Let every operator check its own state and triggers. Over input that ends, state ends with it."""
    for node in walk(root):
        if isinstance(node, KeyedNode):
            forever = frozenset({Accepted.FOR_EVER}) if has_end(node) else frozenset[Accepted]()
            node.plan.refuse(node.name, node.accepted | forever)
    return root


def has_end(node: KeyedNode) -> bool:
    """Tell whether all sources of a node end."""
    return all(getattr(each.source, "ends", False) for each in walk(node) if isinstance(each, Read))
