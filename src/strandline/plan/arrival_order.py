"""Decide whether the output of a pipeline depends on the order in which its elements arrive."""

from strandline.plan.stages import Stages


def order_dependence(stages: Stages) -> str | None:
    """Return why bounded input must be read in micro-batches, in arrival order; None if one batch gives the same rows.

    Elements that go to an output without a keyed step are read in micro-batches too: one batch would be as large as
    the input.
    """
    if any(route.output is not None for scan in stages.scans for flow in scan.flows for route in flow.routes):
        return "elements go to an output as they are"
    return next((reason for step in stages.steps if (reason := step.plan.order_dependence) is not None), None)
