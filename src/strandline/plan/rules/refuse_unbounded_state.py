"""Refuse state that grows without bound, and triggers that close windows early, unless the author accepts it."""

from strandline.plan.nodes import KeyedNode, Root, walk


def refuse_unbounded_state(root: Root) -> Root:
    """Let every operator check its own state and triggers."""
    for node in walk(root):
        if isinstance(node, KeyedNode):
            node.plan.refuse(node.name, node.accepted)
    return root
