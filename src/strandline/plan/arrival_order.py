"""Tell whether the rows of a pipeline depend on the order in which its elements arrive."""

from strandline.plan.stages import Stages


def order_dependence(stages: Stages) -> str | None:
    """Say why this pipeline over bounded input is played in the order of arrival; None if it need not be.

    Rows that only pass on their way to an output are as many as they were, so they go by parts too.
    """
    if any(route.output is not None for scan in stages.scans for flow in scan.flows for route in flow.routes):
        return "elements go to an output as they are"
    return next((why for step in stages.steps if (why := step.plan.order_dependence) is not None), None)
