"""The definitions of keyed operators, a closed union that players match, and of their inputs."""

from dataclasses import dataclass

from strandline.model.deduplicate import Deduplicate
from strandline.model.joins import IntervalJoin
from strandline.model.steps import WindowedStep
from strandline.model.window_joins import WindowJoin

Operator = WindowedStep | Deduplicate | IntervalJoin | WindowJoin


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """One path into an operator: its role and its key columns."""

    role: str
    keys: tuple[str, ...]
