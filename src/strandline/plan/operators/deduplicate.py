"""Plan deduplication: its columns, checks and explanation."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from strandline.errors import InvalidStep
from strandline.model.aggregates import Aggregate
from strandline.model.deduplicate import Deduplicate, Keep
from strandline.model.elements import ZERO, Duration, TimeDomain
from strandline.plan.operators.contract import INPUT, Accepted, Columns, Refinement
from strandline.plan.operators.without_windows import WithoutWindows


@dataclass(frozen=True, slots=True)
class DeduplicatePlan(WithoutWindows):
    """The plan of a deduplication."""

    operator: Deduplicate

    @property
    def refinement(self) -> Refinement:
        return Refinement.CHANGELOG if self.retracts else Refinement.SINGLE

    @property
    def forgets(self) -> str | None:
        # The last element of a key is newer than those before it, also after a gap.
        return None if self.operator.within is None or self.retracts else f"after {self.operator.within} of event time"

    @property
    def allowed_lateness(self) -> Duration | None:
        return None if self.operator.within is None else self.operator.lateness

    @property
    def rows_behind(self) -> Duration | None:
        """Retractions are of any element kept; other elements are as late for the next step as for this one."""
        within, lateness = self.operator.within, self.operator.lateness
        if not self.retracts:
            return ZERO if within is None else lateness
        return None if within is None else Duration(within.ms + lateness.ms)

    def misread_parts(
        self,
        combined_by: Mapping[str, type[Aggregate]],  # noqa: ARG002 - no aggregate combines elements
        fixed: AbstractSet[str],  # noqa: ARG002
    ) -> tuple[str, ...]:
        return ("which of them is kept",)

    @property
    def retracts(self) -> bool:
        return self.operator.keep is Keep.LAST

    @property
    def order_dependence(self) -> str | None:
        if self.operator.time is TimeDomain.PROCESSING:
            return "it uses processing time"
        if self.operator.keep is Keep.FIRST and self.operator.within is None:
            return None
        return "which element of a key is kept depends on the batches" if self.operator.within is not None else None

    def with_signs(self, signs: bool) -> Deduplicate:  # noqa: ARG002 - retractions are refused
        return self.operator

    def name(self, keys: Sequence[str]) -> str:
        return f"deduplicate by {', '.join(keys)}"

    def columns(self, inputs: Mapping[str, Columns], keys: Sequence[str]) -> Columns:  # noqa: ARG002 - rows are elements
        return inputs[INPUT]

    def refuse_retractions(self, name: str, before: str) -> None:
        raise InvalidStep(
            f"{name} cannot process retractions, and {before} sends them",
            hint="make that step discarding or accumulating, or deduplicate before it",
        )

    def refuse(self, name: str, accepted: frozenset[Accepted]) -> None:
        if self.operator.within is None and Accepted.FOR_EVER not in accepted:
            raise InvalidStep(
                f"{name} keeps every key forever, so its state has no bound",
                hint='set a span, as in within="10m", or accept it with forever=True',
            )

    def explain_step(self) -> str:
        within = "" if self.operator.within is None else f" within {self.operator.within} of event time"
        return f"deduplicate: keep the {self.operator.keep} of each key{within}"

    def explain_state(self) -> str:
        kept = "keys and times" if self.operator.keep is Keep.FIRST else "the last element of each key"
        if self.operator.within is None:
            return f"keeps {kept} forever"
        late = "" if self.operator.lateness == ZERO else f", plus {self.operator.lateness} of allowed lateness"
        return f"keeps {kept} until the watermark is {self.operator.within} past their time{late}"

    def describe(self) -> str:
        return self.explain_step()
