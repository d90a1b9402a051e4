"""The definitions of keyed operators, a closed union that players match, and of their inputs."""

from dataclasses import dataclass

from strandline.model.deduplicate import Deduplicate
from strandline.model.joins import IntervalJoin
from strandline.model.steps import WindowedStep
from strandline.model.table_join import TableJoin
from strandline.model.temporal_join import TemporalJoin
from strandline.model.window_join import WindowJoin

Operator = WindowedStep | Deduplicate | IntervalJoin | WindowJoin | TableJoin | TemporalJoin


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """One path into an operator: its role and its key columns."""

    role: str
    keys: tuple[str, ...]
