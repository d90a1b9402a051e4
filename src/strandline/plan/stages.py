"""Define the stages that Spark runs and `explain` prints: scans, keyed steps by level, deliveries.

    scan ──► keyed steps of level 1 ──► keyed steps of level 2 ──► … ──► deliver

A scan reads one source. It has flows: rows with one event time and one watermark. A flow has routes: stateless
operations on the way to a keyed step or to an output. A keyed step has routes for its rows too. Steps of one level
share a shuffle and a state operator. The level of a step is one more than the highest level among its inputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.model.lookup_join import LookupJoin
from strandline.model.operators import Operator, OperatorInput
from strandline.model.watermarks import Inputs, Watermark
from strandline.plan.endpoints import DeadLetters, Delivery, Sink, Source
from strandline.plan.operators import OperatorPlan, plan_of
from strandline.plan.stateless_operations import Operation


@dataclass(frozen=True, slots=True)
class KeepFlagged:
    """Filter on a boolean column that Spark computed."""

    flag: str


@dataclass(frozen=True, slots=True)
class Flagged:
    """A condition that Spark computes as a boolean column."""

    flag: str
    condition: str


@dataclass(frozen=True, slots=True)
class Route:
    """Operations on rows in Python, then a keyed step or an output, by number."""

    operations: tuple[Operation | KeepFlagged, ...]
    step: int | None = None
    output: int | None = None
    input: int = 0
    """Number of the path among the paths of the step; part of the identity of elements."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows with one event time: operations in Python before it is known, its column, its watermark."""

    name: str
    operations: tuple[Operation | KeepFlagged, ...]
    event_time: str | None
    watermark: Watermark | Inputs | None
    routes: tuple[Route, ...]
    start: int | None = None
    end: int | None = None
    """The span of event time that rows are read from, in milliseconds; None for no bound."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Read a source, run operations in Spark, and split the rows into flows."""

    number: int
    source: Source
    native: tuple[Operation | Flagged, ...]
    flows: tuple[Flow, ...]
    dead_to: int
    """Output that receives dead letters from records that cannot be decoded."""
    mask: tuple[str, ...] = ()
    """Fields that are masked in these dead letters."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a keyed step: a flow of a scan with its watermark, or another step."""

    name: str
    watermark: Watermark | Inputs | None
    partitions: tuple[str, ...] = ()
    scan: int | None = None
    """Number of the scan. The driver sends the partitions that its source has in each batch."""


@dataclass(frozen=True, slots=True)
class InputPath:
    """One path into a keyed step: its role, its key columns, the name of its source or step."""

    role: str
    keys: tuple[str, ...]
    origin: str


@dataclass(frozen=True, slots=True)
class KeyedStep:
    """Run a keyed operator in every key group and send its rows to the next steps and outputs."""

    number: int
    level: int
    keys: tuple[str, ...]
    operator: Operator
    inputs: tuple[Input, ...]
    paths: tuple[InputPath, ...]
    """By number. A flow that reaches the step on several paths is one input."""
    routes: tuple[Route, ...]
    late_to: int
    """Output that receives late elements."""
    dead_to: int
    """Output that receives dead letters from failed user functions."""
    groups: int
    mask: tuple[str, ...] = ()
    """Fields that are masked in these dead letters."""

    @property
    def name(self) -> str:
        return step_name(self.number)

    @property
    def operator_inputs(self) -> tuple[OperatorInput, ...]:
        """Return the paths by number, as operators need them."""
        return tuple(OperatorInput(path.role, path.keys) for path in self.paths)

    @property
    def plan(self) -> OperatorPlan:
        return plan_of(self.operator)


@dataclass(frozen=True, slots=True)
class Deliver:
    """Write rows, late elements and dead letters under one ledger entry. Runs once per batch, on the driver."""

    number: int
    sink: Sink
    delivery: Delivery
    keys: tuple[str, ...] | None
    """Key columns that, with the window, identify panes; None for elements and for late elements only."""
    dead: DeadLetters | None = None
    """Sink of its dead letters, if they do not go with the rows."""
    columns: tuple[tuple[str, str | None], ...] = field(default=(), compare=False)
    """Columns of its rows with their types, as far as they are known without Spark; sinks check them when they open."""
    has_latest_view: bool = True
    """Whether the newest row of a key and window is its result; False if rows are parts of results."""
    kept_rows: str | None = None
    """Which rows a sink that writes by key keeps, if not one row for each key and window."""


@dataclass(frozen=True, slots=True)
class Stages:
    """All stages of a job, in the order in which a batch passes them."""

    scans: tuple[Scan, ...]
    steps: tuple[KeyedStep, ...]
    outputs: tuple[Deliver, ...]
    fingerprint: str
    groups: int
    """Number of key groups of every step."""
    cautions: tuple[str, ...] = ()
    """Warnings about rows that a step or a sink would not take as what they are."""

    @property
    def levels(self) -> tuple[tuple[KeyedStep, ...], ...]:
        """Return the keyed steps by level; the steps of one level run side by side."""
        highest = max((step.level for step in self.steps), default=0)
        return tuple(tuple(step for step in self.steps if step.level == level) for level in range(1, highest + 1))

    @property
    def lookups(self) -> tuple[LookupJoin, ...]:
        """Return the lookup joins on the way of rows, each once."""
        routes = [route for scan in self.scans for flow in scan.flows for route in flow.routes]
        routes += [route for step in self.steps for route in step.routes]
        operations = [each for scan in self.scans for flow in scan.flows for each in flow.operations]
        operations += [each for route in routes for each in route.operations]
        return tuple(dict.fromkeys(each for each in operations if isinstance(each, LookupJoin)))

    @property
    def by_number(self) -> Mapping[int, KeyedStep]:
        return {step.number: step for step in self.steps}

    @property
    def timed(self) -> tuple[KeyedStep, ...]:
        """Return the steps with an input from a source; the heartbeat sends the clock to them."""
        return tuple(step for step in self.steps if any(each.watermark is not None for each in step.inputs))


def step_name(number: int) -> str:
    """Return the name of a keyed step as an input of other steps."""
    return f"step {number}"
