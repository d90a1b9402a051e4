"""Answer for operators without windows what the planner asks about windows and panes."""

from collections.abc import Callable, Mapping, Sequence

from strandline.model.aggregates import Aggregate
from strandline.model.triggers import DEFAULT, Trigger


class WithoutWindows:
    """The plan of an operator that emits rows with the columns of its input, and no panes."""

    __slots__ = ()

    @property
    def moves_windows(self) -> bool:
        return False

    @property
    def has_fixed_windows(self) -> bool:
        return False

    @property
    def has_windows_of_one_size(self) -> bool:
        return False

    @property
    def repeats(self) -> bool:
        return False

    @property
    def declared(self) -> Mapping[str, str]:
        return {}

    @property
    def sums(self) -> tuple[str, ...]:
        return ()

    @property
    def combined_by(self) -> Mapping[str, type[Aggregate]]:
        return {}

    @property
    def next_trigger(self) -> Trigger:
        return DEFAULT

    def check_columns(self, need: Callable[[str], str | None], keys: Sequence[str]) -> None:
        """Accept any columns: only keys are read, and they are checked already."""

    def explain_prepare(self, keys: Sequence[str]) -> str:
        return f"group by {', '.join(keys)} without pre-aggregation"

    def cautions(self) -> tuple[str, ...]:
        return ()
