"""Plan an interval join: its columns, checks and explanation."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from strandline.errors import InvalidStep
from strandline.model.aggregates import Aggregate
from strandline.model.elements import ZERO, Duration
from strandline.model.joins import LEFT, RIGHT, How, IntervalJoin
from strandline.plan.operators.contract import Accepted, Columns, Refinement
from strandline.plan.operators.without_windows import WithoutWindows


@dataclass(frozen=True, slots=True)
class IntervalJoinPlan(WithoutWindows):
    """The plan of an interval join."""

    operator: IntervalJoin

    @property
    def refinement(self) -> Refinement:
        return Refinement.SEVERAL

    @property
    def forgets(self) -> None:
        return None

    @property
    def allowed_lateness(self) -> Duration:
        return self.operator.lateness

    @property
    def rows_behind(self) -> Duration:
        """Rows without a partner hold the output watermark back; pairs are as late as their later row."""
        return self.operator.lateness

    def misread_parts(
        self,
        combined_by: Mapping[str, type[Aggregate]],  # noqa: ARG002 - no aggregate combines pairs
        fixed: AbstractSet[str],  # noqa: ARG002
    ) -> tuple[str, ...]:
        return ("which rows are a pair",)

    @property
    def retracts(self) -> bool:
        return False

    @property
    def order_dependence(self) -> str | None:
        return "the time of a row depends on when its partner arrives" if self.operator.how is How.SEMI else None

    def with_signs(self, signs: bool) -> IntervalJoin:  # noqa: ARG002 - retractions are refused
        return self.operator

    def name(self, keys: Sequence[str]) -> str:
        return f"join by {', '.join(keys)}"

    def columns(self, inputs: Mapping[str, Columns], keys: Sequence[str]) -> Columns:
        left = inputs[LEFT]
        known: Columns = {key: left.get(key) for key in keys}
        sides = (LEFT, RIGHT) if self.operator.emits_pairs else (LEFT,)
        return known | {name: kind for role, name, kind in self.operator.columns if role in sides}

    def refuse_retractions(self, name: str, before: str) -> None:
        raise InvalidStep(
            f"{name} cannot process retractions, and {before} sends them",
            hint="make that step discarding or accumulating, or join before it",
        )

    def refuse(self, name: str, accepted: frozenset[Accepted]) -> None:
        """Accept the state: the interval bounds it."""

    def explain_step(self) -> str:
        asked = self.operator
        words = f"{asked.how} join: right event time in [{_bound(asked.lower)}, {_bound(asked.upper)}]"
        return words if asked.condition is None else f"{words}, where {asked.condition}"

    def explain_state(self) -> str:
        late = "" if self.operator.lateness == ZERO else f", plus {self.operator.lateness} of allowed lateness"
        left, right = (max(self.operator.reach(role).ms, 0) for role in (LEFT, RIGHT))
        return (
            f"keeps left rows until the watermark is {Duration(left)} past their time, "
            f"right rows until it is {Duration(right)} past{late}"
        )

    def describe(self) -> str:
        return self.explain_step()


def _bound(bound: Duration) -> str:
    """Return a bound of the interval in terms of the left row's event time."""
    if bound == ZERO:
        return "left"
    return f"left + {bound}" if bound > ZERO else f"left - {-bound}"
