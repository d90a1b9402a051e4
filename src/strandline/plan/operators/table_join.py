"""Plan a table join: its columns, checks and explanation."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from strandline.errors import InvalidStep
from strandline.model.aggregates import Aggregate
from strandline.model.elements import Duration, TimeDomain
from strandline.model.joins import How
from strandline.model.table_join import TableJoin, table_role
from strandline.plan.operators.contract import Accepted, Columns, Refinement
from strandline.plan.operators.without_windows import WithoutWindows


@dataclass(frozen=True, slots=True)
class TableJoinPlan(WithoutWindows):
    """The plan of a table join."""

    operator: TableJoin

    @property
    def refinement(self) -> Refinement:
        return Refinement.CHANGELOG if self.operator.one_row else Refinement.SEVERAL

    @property
    def forgets(self) -> str | None:
        if self.operator.ttl is None:
            return None
        time = "event time" if self.operator.ttl_time is TimeDomain.EVENT else "processing time"
        return f"after {self.operator.ttl} of {time} without a change"

    @property
    def allowed_lateness(self) -> None:
        """A row is accepted at any time, unless its key has been forgotten."""
        return None

    @property
    def rows_behind(self) -> Duration | None:
        """A change of one table may retract and insert rows with rows of any age of the others."""
        return None

    def misread_parts(
        self,
        combined_by: Mapping[str, type[Aggregate]],  # noqa: ARG002 - no aggregate combines rows
        fixed: AbstractSet[str],  # noqa: ARG002
    ) -> tuple[str, ...]:
        return ("which rows are current",)

    @property
    def retracts(self) -> bool:
        return True

    @property
    def order_dependence(self) -> str | None:
        return None if self.operator.ttl is None else "which keys are forgotten depends on the batches"

    def with_signs(self, signs: bool) -> TableJoin:  # noqa: ARG002 - it takes both
        return self.operator

    def name(self, keys: Sequence[str]) -> str:
        return f"join of tables by {', '.join(keys)}"

    def columns(self, inputs: Mapping[str, Columns], keys: Sequence[str]) -> Columns:
        first = inputs[table_role(0)]
        known: Columns = {key: first.get(key) for key in keys}
        shown = {table_role(number) for number in self.operator.shown}
        return known | {name: kind for role, name, kind in self.operator.columns if role in shown}

    def refuse_retractions(self, name: str, before: str) -> None:
        """Accept retractions: they remove rows."""

    def refuse(self, name: str, accepted: frozenset[Accepted]) -> None:
        if self.operator.ttl is None and Accepted.FOR_EVER not in accepted:
            raise InvalidStep(
                f"{name} keeps the rows of every key forever, so its state has no bound",
                hint='forget keys that no longer change, as in expire_after="30d", or accept it with forever=True',
            )

    def explain_step(self) -> str:
        asked = self.operator
        hows = [*dict.fromkeys(asked.joins)]
        words = str(hows[0]) if len(hows) == 1 else ", then ".join(asked.joins)
        one = "" if asked.tables == 2 else ", in one step without intermediate results"
        return f"{words} join of {asked.tables} tables: changes as retractions and insertions{one}"

    def explain_state(self) -> str:
        asked = self.operator
        if asked.ttl is None:
            return "keeps the current rows of every table forever"
        until = f"the watermark is {asked.ttl} past" if asked.ttl_time is TimeDomain.EVENT else f"{asked.ttl} after"
        return f"keeps the current rows of every table until {until} the last change of their key"

    def describe(self) -> str:
        return self.explain_step()

    def cautions(self) -> tuple[str, ...]:
        asked = self.operator
        if asked.ttl is None or asked.joins == (How.INNER,) * len(asked.joins):
            return ()
        text = (
            f"a key that returns after {asked.ttl} without a change begins anew: its earlier rows are no longer "
            "corrected, and rows of other tables are no longer found"
        )
        return (text,)
