"""Panes that repeat what earlier ones said would be counted twice by another aggregate."""

from strandline.errors import InvalidStep
from strandline.model.elements import ZERO
from strandline.model.panes import Accumulation
from strandline.model.steps import WindowedStep
from strandline.model.triggers import DEFAULT, AfterWatermark
from strandline.plan.lineage import strands_to
from strandline.plan.nodes import Accepted, Aggregated, Root, walk


def refuse_repeated(root: Root) -> Root:
    """A step over accumulating panes, unless those can speak only once, or it is meant."""
    for node in walk(root):
        if isinstance(node, Aggregated) and Accepted.REPEATED not in node.accepted:
            for strand in strands_to(node.of):
                before = strand.origin
                if isinstance(before, Aggregated) and repeats(before.step):
                    raise InvalidStep(
                        f"{node.name} would count twice: each pane of {before.name} holds what those before it held",
                        hint="let that step be retracting or discarding, or say key_by(…, even_repeated=True)",
                    )
    return root


def repeats(step: WindowedStep) -> bool:
    """Whether a window can say the same thing in more than one pane."""
    once = step.trigger in (DEFAULT, AfterWatermark()) and step.lateness.allowed == ZERO
    return step.accumulation is Accumulation.ACCUMULATING and not once
