"""Define what an operator adds to the story format: its fields in a pipeline, and the rows that a story expects."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from strandline.model.elements import TimeDomain
from strandline.model.operators import Operator
from strandline.plan.stories.located_values import Written

Readers = Mapping[str, Callable[[Written], Any]]
"""Fields of an expected row, each with the function that parses it."""


class WithAnyColumn(dict[str, Callable[[Written], Any]]):
    """Fields of panes that have other columns too, and several rows for one firing, in any order."""


OF = "of"
"""The role of an operator's input, where it has only one."""


class OperatorWords(Protocol):
    """The words of one operator. A new operator registers its words in `__init__.py`; nothing else changes."""

    @property
    def word(self) -> str:
        """Return the field by which a story chooses the operator."""
        ...

    @property
    def fields(self) -> Collection[str]:
        """Return all fields, the word among them."""
        ...

    @property
    def roles(self) -> Collection[str]:
        """Return the fields that name its inputs."""
        ...

    def parse(self, given: Written, settings: Mapping[str, Written], time: TimeDomain) -> Operator:
        """Parse the definition from its fields."""
        ...

    def readers(self, operator: Operator) -> Readers | None:
        """Return the fields of its rows, beside its key columns; None if it emits rows with any column."""
        ...

    def multisets(self, operator: Operator) -> Collection[str]:
        """Return the fields with lists whose order is free."""
        ...
