"""Plan a window join: its columns, checks and explanation."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from strandline.errors import InvalidStep
from strandline.model.aggregates import Aggregate
from strandline.model.elements import ZERO, Duration
from strandline.model.joins import LEFT, RIGHT, How
from strandline.model.panes import Accumulation
from strandline.model.steps import cautions, emits_once
from strandline.model.triggers import DEFAULT, Trigger, describe
from strandline.model.window_join import WindowJoin
from strandline.model.windows import describe as describe_window
from strandline.plan.operators.contract import Accepted, Columns, Refinement
from strandline.plan.operators.window import PANE, WindowPlan


@dataclass(frozen=True, slots=True)
class WindowJoinPlan:
    """The plan of a window join. Windows and firings are planned as those of a windowed step."""

    operator: WindowJoin

    @property
    def _windows(self) -> WindowPlan:
        return WindowPlan(self.operator.windowed)

    @property
    def refinement(self) -> Refinement:
        return Refinement.SEVERAL

    @property
    def retracts(self) -> bool:
        return self.operator.accumulation is Accumulation.RETRACTING

    @property
    def repeats(self) -> bool:
        return self.operator.accumulation is Accumulation.ACCUMULATING and not emits_once(self.operator.windowed)

    @property
    def moves_windows(self) -> bool:
        return self._windows.moves_windows

    @property
    def forgets(self) -> None:
        return None

    @property
    def allowed_lateness(self) -> Duration | None:
        return self.operator.lateness.allowed

    @property
    def rows_behind(self) -> Duration | None:
        return self._windows.rows_behind

    @property
    def declared(self) -> Mapping[str, str]:
        return PANE

    @property
    def sums(self) -> tuple[str, ...]:
        return ()

    @property
    def has_fixed_windows(self) -> bool:
        return self._windows.has_fixed_windows

    @property
    def has_windows_of_one_size(self) -> bool:
        return self._windows.has_windows_of_one_size

    @property
    def order_dependence(self) -> str | None:
        return self._windows.order_dependence

    @property
    def next_trigger(self) -> Trigger:
        return self._windows.next_trigger

    @property
    def combined_by(self) -> Mapping[str, type[Aggregate]]:
        return {}

    def misread_parts(
        self,
        combined_by: Mapping[str, type[Aggregate]],  # noqa: ARG002 - no aggregate combines pairs
        fixed: AbstractSet[str],  # noqa: ARG002
    ) -> tuple[str, ...]:
        return ("which rows are a pair",)

    def with_signs(self, signs: bool) -> WindowJoin:  # noqa: ARG002 - retractions are refused
        return self.operator

    def name(self, keys: Sequence[str]) -> str:
        return f"join by {', '.join(keys)}"

    def columns(self, inputs: Mapping[str, Columns], keys: Sequence[str]) -> Columns:
        left = inputs[LEFT]
        sides = (LEFT, RIGHT) if self.operator.emits_pairs else (LEFT,)
        own: Columns = {key: left.get(key) for key in keys}
        own |= {name: kind for role, name, kind in self.operator.columns if role in sides}
        return {**own, **{name: kind for name, kind in PANE.items() if name not in own}}

    def check_columns(self, need: Callable[[str], str | None], keys: Sequence[str]) -> None:
        """Accept any columns: only keys are read, and they are checked already."""

    def refuse_retractions(self, name: str, before: str) -> None:
        raise InvalidStep(
            f"{name} cannot process retractions, and {before} sends them",
            hint="make that step discarding or accumulating, or join before it",
        )

    def refuse(self, name: str, accepted: frozenset[Accepted]) -> None:
        """Accept the state: windows and their allowed lateness bound it."""

    def explain_prepare(self, keys: Sequence[str]) -> str:
        return f"group by {', '.join(keys)} without pre-aggregation"

    def explain_step(self) -> str:
        asked = self.operator
        words = [f"{asked.how} join in {describe_window(asked.window)}"]
        if asked.condition is not None:
            words.append(f"where {asked.condition}")
        if asked.trigger != DEFAULT or asked.lateness.allowed != ZERO:
            words.append(f"{describe(asked.trigger)}, {asked.accumulation}")
        return ", ".join(words)

    def explain_state(self) -> str:
        return f"keeps rows of both sides until {self.operator.lateness.allowed} after the end of their last window"

    def describe(self) -> str:
        return self.explain_step()

    def cautions(self) -> tuple[str, ...]:
        asked = self.operator
        found = list(cautions(asked.windowed))
        pads = asked.how not in (How.INNER, How.SEMI)
        if pads and asked.accumulation is not Accumulation.RETRACTING and not emits_once(asked.windowed):
            found.append(
                f"a row without a partner stays in the result of the {asked.how} join if its partner arrives after a "
                "firing: use retracting, which withdraws it"
            )
        return tuple(found)
