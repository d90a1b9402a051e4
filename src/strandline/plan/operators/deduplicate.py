"""Plan deduplication: its columns, checks and explanation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from strandline.errors import InvalidStep
from strandline.model.deduplicate import Deduplicate, Keep
from strandline.model.elements import ZERO, TimeDomain
from strandline.model.triggers import DEFAULT, Trigger
from strandline.plan.operators.contract import INPUT, Accepted, Columns


@dataclass(frozen=True, slots=True)
class DeduplicatePlan:
    """The plan of a deduplication."""

    operator: Deduplicate

    @property
    def retracts(self) -> bool:
        return self.operator.keep is Keep.LAST

    @property
    def repeats(self) -> bool:
        return False

    @property
    def declared(self) -> Mapping[str, str]:
        return {}

    @property
    def has_fixed_windows(self) -> bool:
        return False

    @property
    def next_trigger(self) -> Trigger:
        return DEFAULT

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

    def check_columns(self, need: Callable[[str], str | None], keys: Sequence[str]) -> None:
        """Accept any columns: only keys are read, and they are checked already."""

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

    def explain_prepare(self, keys: Sequence[str]) -> str:
        return f"group by {', '.join(keys)} without pre-aggregation"

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

    def cautions(self) -> tuple[str, ...]:
        return ()
