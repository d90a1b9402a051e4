"""State that nothing ever ends grows for as long as new keys come."""

from strandline.errors import InvalidStep
from strandline.model.windows import Count, Global
from strandline.plan.nodes import Accepted, Aggregated, Root, walk


def refuse_for_ever(root: Root) -> Root:
    """Windows without an end and without a time to live, and lateness without one, unless that is meant."""
    for node in walk(root):
        if not isinstance(node, Aggregated) or Accepted.FOR_EVER in node.accepted:
            continue
        if isinstance(node.step.window, Global) and node.step.ttl is None:
            raise InvalidStep(
                f"{node.name} keeps a row for every key it ever sees: its window has no end",
                hint="give it a window or time_to_live(…), or say keep_for_ever()",
            )
        if not isinstance(node.step.window, Global | Count) and node.step.lateness.allowed is None:
            raise InvalidStep(
                f"{node.name} keeps every window it ever opens: its lateness has no end",
                hint="allow a length of time, or say keep_for_ever()",
            )
    return root
