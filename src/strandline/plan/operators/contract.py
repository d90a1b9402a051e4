"""Define what the planner needs from a keyed operator. `kernel/operator.py` defines what the kernel needs."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Protocol

from strandline.model.aggregates import Aggregate
from strandline.model.elements import Duration
from strandline.model.operators import Operator
from strandline.model.triggers import Trigger

Columns = dict[str, str | None]
"""Columns with their types in DDL; None where only Spark knows the type."""

INPUT: str = "input"
"""The role of the only input."""


class Accepted(StrEnum):
    """What a rule refuses unless the author of the pipeline accepts it."""

    REPEATED = "repeated"
    """Panes that repeat each other are aggregated again."""
    FOR_EVER = "for_ever"
    """State is kept forever for every key."""
    CLOSING = "closing"
    """Windows close before their allowed lateness has passed."""


class Refinement(StrEnum):
    """How later rows of an operator relate to earlier rows of the same key and window."""

    SINGLE = "single"
    """There is at most one row."""
    SEVERAL = "several"
    """There may be several rows, each a result of its own."""
    PARTS = "parts"
    """Each row holds a part of the result. The reader adds rows up."""
    REPLACEMENTS = "replacements"
    """Each row replaces the one before it."""
    CHANGELOG = "changelog"
    """Each row replaces the one before it, which is retracted first."""


class OperatorPlan(Protocol):
    """What the planner needs from a keyed operator."""

    @property
    def refinement(self) -> Refinement:
        """Tell how later rows relate to earlier rows of the same key and window."""
        ...

    @property
    def moves_windows(self) -> bool:
        """Tell whether a row may have another window than the row that it replaces, as when sessions merge."""
        ...

    @property
    def forgets(self) -> str | None:
        """Return when it forgets a key and window whose rows may come again, as in `for 10m`; None if it does not."""
        ...

    @property
    def allowed_lateness(self) -> Duration | None:
        """Return how far behind the watermark it accepts elements; None if it accepts all."""
        ...

    @property
    def rows_behind(self) -> Duration | None:
        """Return how far behind the watermark its rows and retractions may be; None if there is no bound."""
        ...

    @property
    def retracts(self) -> bool:
        """Tell whether it emits retractions."""
        ...

    @property
    def repeats(self) -> bool:
        """Tell whether its rows may repeat what earlier rows held, without retracting it."""
        ...

    @property
    def declared(self) -> Mapping[str, str]:
        """Return the columns that it adds to user columns, with their types, as the next operations read them."""
        ...

    @property
    def sums(self) -> tuple[str, ...]:
        """Return its columns that are null where a sum does not fit its type."""
        ...

    @property
    def has_fixed_windows(self) -> bool:
        """Tell whether its windows have bounds that do not depend on elements."""
        ...

    @property
    def has_windows_of_one_size(self) -> bool:
        """Tell whether all its windows have one size, so that one bound of a window determines the other."""
        ...

    @property
    def order_dependence(self) -> str | None:
        """Return why its rows depend on the order in which elements arrive; None if they do not."""
        ...

    @property
    def next_trigger(self) -> Trigger:
        """Return the default trigger of a windowed operator over its rows."""
        ...

    @property
    def combined_by(self) -> Mapping[str, type[Aggregate]]:
        """Return the aggregate that combines the values of each column in parts of a result, where there is one."""
        ...

    def misread_parts(self, combined_by: Mapping[str, type[Aggregate]], fixed: AbstractSet[str]) -> tuple[str, ...]:
        """Return what it computes wrongly over parts of results; the columns `fixed` are equal in all parts of one."""
        ...

    def with_signs(self, signs: bool) -> Operator:
        """Return the operator for input with retractions, or without."""
        ...

    def name(self, keys: Sequence[str]) -> str:
        """Return its name in error messages."""
        ...

    def columns(self, inputs: Mapping[str, Columns], keys: Sequence[str]) -> Columns:
        """Return the columns of its rows, from those of its inputs by role."""
        ...

    def check_columns(self, need: Callable[[str], str | None], keys: Sequence[str]) -> None:
        """Raise if a column that it reads is missing or of a wrong type; `need` returns the type of a column."""
        ...

    def refuse_retractions(self, name: str, before: str) -> None:
        """Raise if it cannot process the retractions that `before` sends."""
        ...

    def refuse(self, name: str, accepted: frozenset[Accepted]) -> None:
        """Raise if its state is unbounded or its windows close early, unless the author has accepted that."""
        ...

    def explain_prepare(self, keys: Sequence[str]) -> str:
        """Describe what tasks do before the shuffle."""
        ...

    def explain_step(self) -> str:
        """Describe what a key group does."""
        ...

    def explain_state(self) -> str:
        """Describe the state and its retention. The text starts with `keeps`; `strandline state` searches for it."""
        ...

    def describe(self) -> str:
        """Describe the operator in a few words: its windows, or what it keeps."""
        ...

    def cautions(self) -> tuple[str, ...]:
        """Return warnings about settings that are allowed but often unintended, with the way out."""
        ...
