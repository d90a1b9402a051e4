"""Whether what a pipeline says hangs on the order in which its elements come, or only on which they are."""

from strandline.model.elements import TimeDomain
from strandline.model.panes import Accumulation
from strandline.model.steps import WindowedStep
from strandline.model.triggers import AfterWatermark, Never, Repeatedly, describe
from strandline.model.windows import Count, Session
from strandline.plan.stages import Stages


def hangs_on_arrival(stages: Stages) -> str | None:
    """Why this pipeline over bounded input is played in the order of arrival, in words; None if it need not be.

    Rows that only pass on their way to an output are as many as they were, so they go by parts too.
    """
    if any(route.output is not None for scan in stages.scans for flow in scan.flows for route in flow.routes):
        return "elements go to an output as they are"
    return next((why for step in stages.steps if (why := why_of(step.step)) is not None), None)


def why_of(step: WindowedStep) -> str | None:
    if step.time is TimeDomain.PROCESSING:
        return "time is the clock's"
    if isinstance(step.window, Count):
        return "windows hold elements as they come"
    if step.evictor is not None:
        return "an evictor looks at what came last"
    if step.ttl is not None:
        return "state has a time to live, by the clock"
    trigger = step.trigger
    match trigger.of if isinstance(trigger, Repeatedly) else trigger:
        case Never() | AfterWatermark(None, _):
            return None
        case AfterWatermark() if step.accumulation is Accumulation.DISCARDING:
            return f"{describe(trigger)} divides what windows hold among panes"
        case AfterWatermark() if step.accumulation is Accumulation.ACCUMULATING and isinstance(step.window, Session):
            return "sessions that grow leave panes under the bounds they had"
        case AfterWatermark():
            # Of panes that each hold all before them the last one says it all, and nothing is early at the end.
            return None
        case _:
            return f"{describe(trigger)} speaks by what has come so far"
