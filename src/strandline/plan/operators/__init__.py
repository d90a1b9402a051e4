"""Find the plan of a keyed operator: its columns, checks and explanation. The one place that matches the union."""

from typing import assert_never

from strandline.model.deduplicate import Deduplicate
from strandline.model.joins import IntervalJoin
from strandline.model.operators import Operator
from strandline.model.steps import WindowedStep
from strandline.model.table_join import TableJoin
from strandline.model.temporal_join import TemporalJoin
from strandline.model.window_join import WindowJoin
from strandline.plan.operators.contract import Accepted, Columns, OperatorPlan
from strandline.plan.operators.deduplicate import DeduplicatePlan
from strandline.plan.operators.interval_join import IntervalJoinPlan
from strandline.plan.operators.table_join import TableJoinPlan
from strandline.plan.operators.temporal_join import TemporalJoinPlan
from strandline.plan.operators.window import WindowPlan
from strandline.plan.operators.window_join import WindowJoinPlan

__all__ = ["Accepted", "Columns", "OperatorPlan", "plan_of"]


def plan_of(operator: Operator) -> OperatorPlan:
    """Return the plan of an operator."""
    match operator:
        case WindowedStep():
            return WindowPlan(operator)
        case Deduplicate():
            return DeduplicatePlan(operator)
        case IntervalJoin():
            return IntervalJoinPlan(operator)
        case WindowJoin():
            return WindowJoinPlan(operator)
        case TableJoin():
            return TableJoinPlan(operator)
        case TemporalJoin():
            return TemporalJoinPlan(operator)
    assert_never(operator)
