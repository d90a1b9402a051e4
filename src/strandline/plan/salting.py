"""Salt hot keys: hold the elements of a hot key in several key groups until their window ends.

    elements ──► key and salt: hold until the window ends ──► key: the original step

Only steps without pre-aggregation are salted. With it, a hot key costs one row per task (decision 0021).
"""

from dataclasses import replace
from typing import Final

from strandline.errors import InvalidStep
from strandline.model.aggregates import Collect, StringAgg, UserAggregate, columns_of
from strandline.model.elements import TimeDomain
from strandline.model.evictors import KeepWithin
from strandline.model.panes import Accumulation, Emit, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import DEFAULT, AfterWatermark, Trigger
from strandline.model.windows import Count, Cumulating, Custom, Global, Session, Sliding, Tumbling
from strandline.plan.columns import PANE
from strandline.plan.endpoints import Sink
from strandline.plan.lineage import paths_to
from strandline.plan.nodes import KeyedNode, Node, Stateless, over
from strandline.plan.operators.contract import Accepted
from strandline.plan.stateless_operations import Gather, Spread

HELD, SALT = "@held", "@salt"
LEAST: Final = 1_000
"""Keys with fewer rows in a task are not salted."""


def salted(
    of: Node,
    keys: tuple[str, ...],
    step: WindowedStep,
    salt: int,
    accepted: frozenset[Accepted],
    late_sink: Sink | None,
) -> KeyedNode:
    """Return the step as two if it has no pre-aggregation, else unchanged; raise if it cannot be salted."""
    whole = over(of, keys, step, accepted=accepted, late_sink=late_sink)
    return _split(whole, step, salt) if keeps_elements(step) else whole


def keeps_elements(step: WindowedStep) -> bool:
    """Tell whether windows keep single elements, so that pre-aggregation would not reduce them."""
    whole = (Collect, StringAgg, UserAggregate)
    return step.evictor is not None or any(isinstance(each, whole) for _, each in step.aggregates)


def in_two(step: WindowedStep) -> tuple[WindowedStep, WindowedStep]:
    """Return the step that holds elements until their window ends, and the step that aggregates its panes."""
    hold = WindowedStep(
        aggregates=((HELD, Collect(HELD)),), window=step.window, lateness=step.lateness, on_time_pane=Emit.IF_NON_EMPTY,
        accumulation=Accumulation.DISCARDING,
    )  # fmt: skip
    return hold, replace(step, window=Custom("window_start", "window_end"))


def _split(node: KeyedNode, step: WindowedStep, salt: int) -> KeyedNode:
    (of,) = node.inputs
    known = of.columns
    columns = tuple((name, known.get(name)) for name in columns_read(step) if name not in node.keys)
    _refuse(node, step, [name for name, _ in columns])
    hold, aggregate = in_two(step)
    spread = Stateless(of, Spread(node.keys, salt, LEAST, columns, step))
    held = over(spread, (*node.keys, SALT), hold, accepted=node.accepted, late_sink=node.late_sink)
    return over(Stateless(held, Gather(columns)), node.keys, aggregate, accepted=node.accepted)


def columns_read(step: WindowedStep) -> list[str]:
    """Return the columns that its aggregates read, each once."""
    return list(dict.fromkeys(name for _, each in step.aggregates for name in columns_of(each)))


def _refuse(node: KeyedNode, step: WindowedStep, columns: list[str]) -> None:
    reason = why_not(step) or _why_not_here(node, columns)
    if reason is not None:
        raise InvalidStep(f"hot keys of {node.name} cannot be salted: {reason[0]}", hint=reason[1])


def why_not(step: WindowedStep) -> tuple[str, str] | None:
    """Return why the elements of a step cannot wait in several key groups, with the way out; None if they can."""
    without = "leave hot_keys(…) out"
    match step.window:
        case Session():
            return "the end of a session depends on all of its elements", without
        case Count():
            return "a count window depends on the arrival order of all its elements", without
        case Global():
            return "the elements of a global window would be held forever", without
        case Custom():
            return "custom windows may end before their elements arrive", without
        case Tumbling() | Sliding() | Cumulating():
            pass
    if step.time is TimeDomain.PROCESSING:
        return "in processing time windows end with the batch, and nothing would be held", without
    if not _fires_at_the_end(step.trigger):
        return (
            "its trigger may fire before the end of a window, or closes it",
            "use after_watermark without an early part and with a late part",
        )
    if step.evictor is not None and not isinstance(step.evictor, KeepWithin):
        return "its evictor depends on arrival order over all batches", "use keep_within, which uses event time"
    if step.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        return (
            "its panes have the time of elements and would hold the watermark back",
            "stamp_panes('end_of_window')",
        )
    return None


def _fires_at_the_end(trigger: Trigger) -> bool:
    match trigger:
        case AfterWatermark(early, late):
            return early is None and late is not None
        case _:
            return trigger == DEFAULT


def _why_not_here(node: KeyedNode, columns: list[str]) -> tuple[str, str] | None:
    if any(isinstance(path.origin, KeyedNode) for path in paths_to(node.inputs[0])):
        return "its elements are panes of another step", "call hot_keys(…) on that step"
    clash = next((name for name in columns if name in PANE), None)
    if clash is not None:
        return f"the column {clash!r} has the name of a pane column", "rename it with select(…) before key_by(…)"
    return None
