"""Refuse state that grows without bound, and triggers that close windows early, unless the author accepts it."""

from strandline.plan.nodes import KeyedNode, Root, walk


def refuse_unbounded_state(root: Root) -> Root:
    """Ask every operator; each knows what its state and its triggers do."""
    for node in walk(root):
        if isinstance(node, KeyedNode):
            node.plan.refuse(node.name, node.accepted)
    return root
