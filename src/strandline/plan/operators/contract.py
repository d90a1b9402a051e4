"""The contract of keyed operators towards the plan. `kernel/operator.py` has the contract towards the kernel."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from strandline.model.operators import Operator
from strandline.model.triggers import Trigger

Columns = dict[str, str | None]
"""Columns with their types as DDL writes them; None where Spark must look first."""

INPUT: str = "input"
"""The role of the only input."""


class Accepted(StrEnum):
    """What is refused unless the pipeline's author accepts it."""

    REPEATED = "repeated"
    """Panes that repeat each other are aggregated again."""
    FOR_EVER = "for_ever"
    """State is kept for every key that was ever seen."""
    CLOSING = "closing"
    """Windows close before their lateness is over."""


class OperatorPlan(Protocol):
    """What the plan asks of a keyed operator."""

    @property
    def takes_back(self) -> bool:
        """Tell whether it emits retractions."""
        ...

    @property
    def repeats(self) -> bool:
        """Tell whether its rows may repeat what earlier rows held, without retracting it."""
        ...

    @property
    def declared(self) -> Mapping[str, str]:
        """Columns that it declares beside user columns, as the next operations read them, with their types."""
        ...

    @property
    def has_fixed_windows(self) -> bool:
        """Tell whether its windows have bounds that do not depend on elements."""
        ...

    @property
    def order_dependence(self) -> str | None:
        """Say why its rows depend on the order in which elements arrive; None if they do not."""
        ...

    @property
    def next_trigger(self) -> Trigger:
        """Return the trigger of a windowed operator over its rows, unless the pipeline names one."""
        ...

    def with_signs(self, signs: bool) -> Operator:
        """Return the operator for input that retracts, or does not."""
        ...

    def name(self, keys: Sequence[str]) -> str:
        """Name it in errors."""
        ...

    def columns(self, known: Columns, keys: Sequence[str]) -> Columns:
        """Return the columns of its rows."""
        ...

    def check_columns(self, need: Callable[[str], str | None], keys: Sequence[str]) -> None:
        """Raise if a column that it reads is missing or of a wrong type; `need` returns the type of a column."""
        ...

    def refuse_retractions(self, name: str, before: str) -> None:
        """Raise if it cannot process the retractions that `before` sends."""
        ...

    def refuse(self, name: str, accepted: frozenset[Accepted]) -> None:
        """Raise if state grows without bound, or data is refused unexpectedly, and the author has not accepted that."""
        ...

    def explain_prepare(self, keys: Sequence[str]) -> str:
        """Say what tasks do before the shuffle."""
        ...

    def explain_step(self) -> str:
        """Say what a key group does."""
        ...

    def explain_state(self) -> str:
        """Say what is kept, and until when."""
        ...

    def describe(self) -> str:
        """Describe it in a few words: its windows, or what it keeps."""
        ...

    def cautions(self) -> tuple[str, ...]:
        """Return what is allowed but easily not meant, each in a sentence with the way out."""
        ...
