"""What one SQL database has of its own: how it is reached, how it quotes, what types it has, how rows get in."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from strandline.formats.sink_columns import Column, Kind, Told


class Refusal(Exception):
    """The database will not take these rows: a constraint, a type, a length. Its message, without the statement."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Where databases differ in a word."""

    same: str = "IS NOT DISTINCT FROM"
    """The operator for which null is null."""
    indexes: bool = True
    """Whether rows are found by an index, or as fast without."""
    merges: bool = False
    """Whether rows are written and added in one statement, which finds each key once."""
    minds_case: bool = False
    """Whether `Total` and `total` are two columns."""
    longest_name: int | None = None
    """The bytes a name may have, where a longer one would be cut off."""
    room: str = ""
    """How a table is made whose rows will be written over: with room beside each for what comes in its place."""
    alone: str = ""
    """What to say before a table is made that others may be making too."""


class Dialect(Protocol):
    """A connection, used from one thread at a time. Faults come as SinkUnavailable, SinkError, or Refusal."""

    @property
    def traits(self) -> Traits: ...

    def quoted(self, name: str) -> str: ...

    def type_of(self, column: Column) -> str:
        """The type of a new column."""
        ...

    def milliseconds(self, name: str) -> str:
        """What a statement says for an instant in this column, as it was before it was written."""
        ...

    def fits(self, kind: Kind, found: str) -> bool:
        """Whether values of this kind go into a column that was declared so; true also where only a row can tell."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing, and durable at the end; the connection is made anew if it was lost."""
        ...

    def savepoint(self) -> AbstractContextManager[None]:
        """Inside a transaction: what was done since is undone if a Refusal passes."""
        ...

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """A statement with `?` for each value; the rows it returns."""
        ...

    def columns(self, table: str) -> dict[str, str]:
        """The columns of a table in order, with their declared types; none if there is no such table."""
        ...

    def load(self, table: str, told: Told) -> None:
        """Adds rows to a table."""
        ...

    def stage(self, table: str, told: Told) -> str:
        """Rows where statements can see them, typed as the table's columns; returns what to select them from."""
        ...

    def finding(self, table: str, key: Sequence[str]) -> AbstractContextManager[object]:
        """Statements that look for the staged rows in a table, by these columns."""
        ...

    def create_view(self, name: str, query: str) -> None:
        """Makes a view, or makes it anew."""
        ...

    def close(self) -> None: ...
