"""A trigger that finishes closes its window; elements that it would still have taken are then refused."""

from strandline.errors import InvalidStep
from strandline.model.elements import ZERO
from strandline.model.steps import WindowedStep
from strandline.model.triggers import describe, finishes_by_watermark_only, may_finish
from strandline.plan.nodes import Accepted, Aggregated, Root, walk


def refuse_closing(root: Root) -> Root:
    """Triggers under which a window may close before its lateness is over, unless that is meant."""
    for node in walk(root):
        if isinstance(node, Aggregated) and Accepted.CLOSING not in node.accepted and closes_early(node.step):
            raise InvalidStep(
                f"the trigger of {node.name} finishes, and its windows take no elements after that",
                detail=f"{describe(node.step.trigger)}; what comes later goes to the late output as closed",
                hint="wrap it in repeatedly(…), give after_watermark a late part, or say trigger(…, may_close=True)",
            )
    return root


def closes_early(step: WindowedStep) -> bool:
    """Whether a window may close while it could still take elements."""
    if not may_finish(step.trigger):
        return False
    return not finishes_by_watermark_only(step.trigger) or step.lateness.allowed != ZERO
