"""Plan a temporal join: its columns, checks and explanation."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from strandline.errors import InvalidStep
from strandline.model.aggregates import Aggregate
from strandline.model.elements import ZERO, Duration
from strandline.model.joins import LEFT
from strandline.model.temporal_join import Direction, TemporalJoin
from strandline.plan.operators.contract import Accepted, Columns, Refinement
from strandline.plan.operators.without_windows import WithoutWindows


@dataclass(frozen=True, slots=True)
class TemporalJoinPlan(WithoutWindows):
    """The plan of a temporal join."""

    operator: TemporalJoin

    @property
    def refinement(self) -> Refinement:
        return Refinement.SEVERAL

    @property
    def forgets(self) -> None:
        return None

    @property
    def allowed_lateness(self) -> Duration:
        return ZERO

    @property
    def rows_behind(self) -> Duration:
        """Corrected rows are behind the watermark; rows that still wait hold the output watermark back."""
        return self.operator.corrections

    def misread_parts(
        self,
        combined_by: Mapping[str, type[Aggregate]],  # noqa: ARG002 - no aggregate combines rows
        fixed: AbstractSet[str],  # noqa: ARG002
    ) -> tuple[str, ...]:
        return ("which version is valid",)

    @property
    def retracts(self) -> bool:
        return self.operator.retracts

    @property
    def order_dependence(self) -> None:
        return None

    def with_signs(self, signs: bool) -> TemporalJoin:
        return replace(self.operator, signs=signs and not self.operator.ignores_retractions)

    def name(self, keys: Sequence[str]) -> str:
        return f"join as of by {', '.join(keys)}"

    def columns(self, inputs: Mapping[str, Columns], keys: Sequence[str]) -> Columns:
        known: Columns = {key: inputs[LEFT].get(key) for key in keys}
        return known | {name: kind for _, name, kind in self.operator.columns}

    def refuse_retractions(self, name: str, before: str) -> None:
        if self.operator.direction is not Direction.BACKWARD and not self.operator.ignores_retractions:
            raise InvalidStep(
                f"{name} with direction {self.operator.direction} cannot process deletions, and {before} sends "
                "retractions",
                hint='use direction="backward", or make that step discarding or accumulating',
            )

    def refuse(self, name: str, accepted: frozenset[Accepted]) -> None:
        """Accept the state: it is a table with one version of each key, and the versions of rows that still wait."""

    def explain_step(self) -> str:
        asked = self.operator
        near = "" if asked.tolerance is None else f", at most {asked.tolerance} apart"
        deleted = "" if asked.deleted is None else f", deleted if {asked.deleted}"
        return f"{asked.how} join as of the left event time: {_WHICH[asked.direction]}{near}{deleted}"

    def explain_state(self) -> str:
        asked = self.operator
        kept = Duration(asked.delay.ms + asked.corrections.ms)
        left = f"keeps left rows until the watermark is {kept} past their time"
        if asked.reach is not None:
            return f"{left}, right rows until it is {Duration(asked.reach.ms + asked.corrections.ms)} past"
        older = "it passes their end" if asked.corrections == ZERO else f"it is {asked.corrections} past their end"
        return f"{left}, the newest version of each key forever, and older versions until {older}"

    def describe(self) -> str:
        return self.explain_step()

    def cautions(self) -> tuple[str, ...]:
        if self.operator.reach is not None:
            return ()
        return (_ONE_VERSION_OF_EACH_KEY,)


_ONE_VERSION_OF_EACH_KEY: Final = (
    "the join keeps the newest version of every key of the right stream forever: if old versions need not answer, "
    "bound the state with a tolerance"
)
_WHICH: Final = {
    Direction.BACKWARD: "the last right row at or before it",
    Direction.FORWARD: "the first right row at or after it",
    Direction.NEAREST: "the nearest right row",
}
