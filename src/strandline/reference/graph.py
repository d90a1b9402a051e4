"""Describe steps that read sources and each other, for the oracle."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.model.lookup_join import LookupJoin
from strandline.model.operators import Operator
from strandline.reference.watermarks import Rule


@dataclass(frozen=True, slots=True)
class Path:
    """A way of rows into a step, from a source or from another step."""

    keys: tuple[str, ...]
    """Key columns."""
    input: str
    """The input whose watermark judges the rows."""
    origin: str = ""
    """Name of the source or step, as late elements carry it."""
    source: str | None = None
    step: int | None = None
    """Number of the step that sends the rows, if no source does."""
    time: str | None = None
    """Column of event time; None for processing time and for rows of a step, which have a time."""
    role: str = ""
    lookups: tuple[LookupJoin, ...] = ()
    """Lookups on the way, in order."""


@dataclass(frozen=True, slots=True)
class StepInput:
    """An input of a step: a source with its watermark rule and known partitions, or another step without a rule."""

    name: str
    rule: Rule | None
    partitions: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A keyed operator, its inputs, and the outputs of its rows, late elements and dead letters."""

    name: str
    operator: Operator
    inputs: tuple[StepInput, ...]
    paths: tuple[Path, ...]
    outputs: tuple[str, ...] = ("",)
    late_to: str = ""
    dead_to: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        return self.paths[0].keys

    @property
    def rule(self) -> Rule | None:
        """Return the rule of its only input, if that is a source; several inputs are combined."""
        return self.inputs[0].rule if len(self.inputs) == 1 else None


@dataclass(frozen=True, slots=True)
class Exit:
    """A way of rows from a source to an output, without a step."""

    path: Path
    output: str = ""
    name: str = ""
    """Under which its elements are counted."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps in an order in which each reads only sources and earlier steps."""

    steps: tuple[Step, ...]
    hidden: frozenset[str] = frozenset()
    """Columns that are not shown, because a row has them as its key or its time."""
    names: Mapping[str, int] = field(default_factory=dict)
    """Steps by name."""
    exits: tuple[Exit, ...] = ()


def one_step(operator: Operator, rule: Rule, partitions: tuple[str, ...] = ()) -> Graph:
    """Return one step over one source."""
    path = Path(("key",), "source", source="", time="at")
    step = Step("", operator, (StepInput("source", rule, partitions),), (path,))
    return Graph((step,), frozenset({"key", "at"}), {"": 0})
