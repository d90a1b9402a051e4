"""Rows that cannot be combined are spread, then gathered: a hot key's elements are held in many key groups.

    elements ──► by key and place, until the window ends ──► by key: the step as it was asked for

Nothing is gained where elements are combined before the shuffle: there a hot key costs a row for each task already.
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
from strandline.plan.lineage import strands_to
from strandline.plan.nodes import KeyedNode, Node, Stateless, over
from strandline.plan.operators.contract import Accepted
from strandline.plan.stateless_operations import Gather, Spread

HELD, SALT = "@held", "@salt"
LEAST: Final = 1_000
"""A key with fewer rows in a task than this is not worth spreading."""


def salted(
    of: Node, keys: tuple[str, ...], step: WindowedStep, salt: int, accepted: frozenset[Accepted], rest: Sink | None
) -> KeyedNode:
    """Return the step as two, where that brings something; raise where it cannot be salted."""
    whole = over(of, keys, step, accepted=accepted, rest=rest)
    return _in_two(whole, step, salt) if piles_up(step) else whole


def piles_up(step: WindowedStep) -> bool:
    """Whether each element is kept as it came, so that combining makes nothing smaller."""
    kept = (Collect, StringAgg, UserAggregate)
    return step.evictor is not None or any(isinstance(each, kept) for _, each in step.aggregates)


def in_two(step: WindowedStep) -> tuple[WindowedStep, WindowedStep]:
    """A step that holds elements until their window ends, and the one that takes them from its panes."""
    hold = WindowedStep(
        aggregates=((HELD, Collect(HELD)),), window=step.window, lateness=step.lateness, on_time_pane=Emit.IF_NON_EMPTY,
        accumulation=Accumulation.DISCARDING,
    )  # fmt: skip
    return hold, replace(step, window=Custom("window_start", "window_end"))


def _in_two(node: KeyedNode, step: WindowedStep, salt: int) -> KeyedNode:
    (of,) = node.inputs
    known = of.columns
    columns = tuple((name, known.get(name)) for name in columns_read(step) if name not in node.keys)
    _refuse(node, step, [name for name, _ in columns])
    hold, take = in_two(step)
    spread = Stateless(of, Spread(node.keys, salt, LEAST, columns, step))
    held = over(spread, (*node.keys, SALT), hold, accepted=node.accepted, rest=node.rest)
    return over(Stateless(held, Gather(columns)), node.keys, take, accepted=node.accepted)


def columns_read(step: WindowedStep) -> list[str]:
    """The columns that its aggregates read, each once."""
    return list(dict.fromkeys(name for _, each in step.aggregates for name in columns_of(each)))


def _refuse(node: KeyedNode, step: WindowedStep, columns: list[str]) -> None:
    why = why_not(step) or _why_not_here(node, columns)
    if why is not None:
        raise InvalidStep(f"hot keys of {node.name} cannot be salted: {why[0]}", hint=why[1])


def why_not(step: WindowedStep) -> tuple[str, str] | None:
    """What must be seen in one place, and cannot wait until the window ends; with the way out."""
    without = "leave hot_keys(…) out"
    match step.window:
        case Session():
            return "where a session ends is known only where all its elements are", without
        case Count():
            return "a count window goes by the order of arrival of all its elements", without
        case Global():
            return "a window without an end would be held for ever", without
        case Custom():
            return "windows from columns may have ended before their elements", without
        case Tumbling() | Sliding() | Cumulating():
            pass
    if step.time is TimeDomain.PROCESSING:
        return "by the clock windows end with the batch, and nothing would be held", without
    if not _speaks_at_the_end(step.trigger):
        return (
            "its trigger speaks before the end of a window, or closes it, and must see each element as it comes",
            "leave the early part out, and give after_watermark a late part",
        )
    if step.evictor is not None and not isinstance(step.evictor, KeepWithin):
        return "its evictor goes by the order of arrival over all batches", "use keep_within, which goes by event time"
    if step.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        return "its panes are stamped by elements, which hold time back while they wait", "stamp by the end of windows"
    return None


def _speaks_at_the_end(trigger: Trigger) -> bool:
    match trigger:
        case AfterWatermark(early, late):
            return early is None and late is not None
        case _:
            return trigger == DEFAULT


def _why_not_here(node: KeyedNode, columns: list[str]) -> tuple[str, str] | None:
    if any(isinstance(strand.origin, KeyedNode) for strand in strands_to(node.inputs[0])):
        return "its elements are panes of another step", "salt that step"
    taken = next((name for name in columns if name in PANE), None)
    if taken is not None:
        return f"the column {taken!r} is called as a part of every pane is", "rename it with select(…) before the key"
    return None
