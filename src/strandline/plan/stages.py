"""What a player executes, and what `explain` prints: scans, keyed steps by level, deliveries.

    scan ──► keyed steps of level 1 ──► keyed steps of level 2 ──► … ──► deliver

A scan reads one source. It has flows, each with a notion of time, and every flow has routes: what happens to its rows
on the way to a keyed step or to an output. A keyed step has routes for its panes likewise. Steps of one level share a
shuffle and a state operator; a step's level is one more than the highest of those it takes its rows from.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.model.operators import Operator
from strandline.model.watermarks import Watermark
from strandline.plan.endpoints import DeadLetters, Delivery, Sink, Source
from strandline.plan.operators import OperatorPlan, plan_of
from strandline.plan.stateless_operations import Operation


@dataclass(frozen=True, slots=True)
class KeepFlagged:
    """Filter on a boolean column that Spark computed."""

    flag: str


@dataclass(frozen=True, slots=True)
class Flagged:
    """A native condition, computed as a column of this name."""

    flag: str
    condition: str


@dataclass(frozen=True, slots=True)
class Route:
    """What happens to rows in Python, and where they go: to a keyed step or to an output, by number."""

    operations: tuple[Operation | KeepFlagged, ...]
    step: int | None = None
    output: int | None = None
    input: int = 0
    """Number of the strand among those of the step; part of the identity of elements."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows with one notion of time: what is done in Python to learn it, its column, its watermark."""

    name: str
    operations: tuple[Operation | KeepFlagged, ...]
    event_time: str | None
    watermark: Watermark | None
    routes: tuple[Route, ...]
    start: int | None = None
    end: int | None = None
    """The span of time that rows are taken from, in milliseconds; None: from the beginning, or to the end."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads a source; what Spark itself does to its rows; and the flows they become."""

    number: int
    source: Source
    native: tuple[Operation | Flagged, ...]
    flows: tuple[Flow, ...]
    dead_to: int
    """The output that records which cannot be read go to."""
    mask: tuple[str, ...] = ()
    """The fields that are hidden there."""


@dataclass(frozen=True, slots=True)
class Input:
    """What a keyed step takes rows and time from: a flow of a scan, by its watermark, or another step."""

    name: str
    watermark: Watermark | None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StrandInput:
    """One strand into a keyed step: its role, its key columns, and the name of where it comes from."""

    role: str
    keys: tuple[str, ...]
    origin: str


@dataclass(frozen=True, slots=True)
class KeyedStep:
    """Play a keyed operator in every key group, then send its rows on."""

    number: int
    level: int
    keys: tuple[str, ...]
    operator: Operator
    inputs: tuple[Input, ...]
    strands: tuple[StrandInput, ...]
    """By number; a flow that reaches the step by several paths is one input and several strands."""
    routes: tuple[Route, ...]
    late_to: int
    """The output that late elements go to."""
    dead_to: int
    """The output that goes with rows which a function could not take."""
    groups: int
    mask: tuple[str, ...] = ()
    """The fields that are hidden in rows which a function could not take."""

    @property
    def name(self) -> str:
        return step_name(self.number)

    @property
    def plan(self) -> OperatorPlan:
        return plan_of(self.operator)


@dataclass(frozen=True, slots=True)
class Deliver:
    """On the driver, once a batch: rows, late elements and dead letters under one ledger entry."""

    number: int
    sink: Sink
    delivery: Delivery
    keys: tuple[str, ...] | None
    """What panes are told apart by, besides their windows; None where elements are written, or late ones only."""
    dead: DeadLetters | None = None
    """Where its dead letters go, if not with the rows."""


@dataclass(frozen=True, slots=True)
class Stages:
    """The path of a batch."""

    scans: tuple[Scan, ...]
    steps: tuple[KeyedStep, ...]
    outputs: tuple[Deliver, ...]
    fingerprint: str
    groups: int
    """Key groups of every step."""

    @property
    def levels(self) -> tuple[tuple[KeyedStep, ...], ...]:
        """The keyed steps, those that run side by side together."""
        highest = max((step.level for step in self.steps), default=0)
        return tuple(tuple(step for step in self.steps if step.level == level) for level in range(1, highest + 1))

    @property
    def by_number(self) -> Mapping[int, KeyedStep]:
        return {step.number: step for step in self.steps}

    @property
    def timed(self) -> tuple[KeyedStep, ...]:
        """The steps that hear of the clock from the sources themselves."""
        return tuple(step for step in self.steps if any(each.watermark is not None for each in step.inputs))


def step_name(number: int) -> str:
    """How a keyed step is called where another takes its time from it."""
    return f"step {number}"
