"""Dialect of one SQL database: connection, quoting, types, and how rows are loaded."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from strandline.errors import SetupError
from strandline.formats.sink_columns import Column, Kind, SinkRows


class Refusal(Exception):
    """Raised when the database refuses a statement for its content: a constraint, a type, a length, a limit.

    Every error is a Refusal that is not about the state of the connection or the server. Holds the database's message
    without the statement.
    """

    def __init__(self, message: str, *, race: bool = False) -> None:
        super().__init__(message)
        self.race = race
        """Whether another writer may have added the same key meanwhile, so that another attempt finds its row."""


@dataclass(frozen=True, slots=True)
class Traits:
    """SQL syntax and features that differ by database."""

    same: str = "IS NOT DISTINCT FROM"
    """The operator that treats two nulls as equal."""
    indexes: bool = True
    """Whether rows are found by an index; False if a scan is as fast."""
    has_merge: bool = False
    """Whether MERGE updates and inserts rows in one statement that finds each key once."""
    case_sensitive: bool = False
    """Whether column names are case-sensitive."""
    longest_name: int | None = None
    """The longest name in bytes, where the database truncates longer ones."""
    update_room: str = ""
    """Clause for a table whose rows will be updated: it leaves room for new row versions on the same page."""
    row_id: str = ""
    """The column that numbers the rows of every table, where rows can be read on from a number at no cost."""
    creation_lock: str = ""
    """Statement that takes a lock before creating a table that other processes may be creating too."""


def require_folder(path: str) -> None:
    """Create the folder of a database file. Raise if its parent is missing too: that is a typo, not a new folder."""
    folder = Path(path).absolute().parent
    if not folder.parent.is_dir():
        raise SetupError(
            f"the folder {folder} does not exist",
            detail=f"its parent {folder.parent} does not exist either, so {Path(path).name} is not made there",
            hint=f"check the path, or create the folder: mkdir -p {folder}",
        )
    with suppress(OSError):  # opening the file says what is wrong with the folder
        folder.mkdir(exist_ok=True)


class Dialect(Protocol):
    """A connection, used from one thread at a time. Raises SinkUnavailable, SinkError or Refusal."""

    @property
    def traits(self) -> Traits: ...

    def quoted(self, name: str) -> str: ...

    def type_of(self, column: Column) -> str:
        """The type of a new column."""
        ...

    def milliseconds(self, name: str) -> str:
        """SQL that converts an instant in this column back to milliseconds."""
        ...

    def fits(self, kind: Kind, found: str) -> bool:
        """Whether values of this kind fit a column of this declared type; True also where only a row can show it."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Run one durable transaction; reconnect if the connection was lost."""
        ...

    def savepoint(self) -> AbstractContextManager[None]:
        """Open a savepoint inside a transaction; a Refusal rolls back to it."""
        ...

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement with `?` for each value; return its rows."""
        ...

    def columns(self, table: str) -> dict[str, str]:
        """The columns of a table in order, with their declared types; empty if there is no such table."""
        ...

    def load(self, table: str, rows: SinkRows) -> None:
        """Add rows to a table."""
        ...

    def stage(self, table: str, rows: SinkRows) -> str:
        """Load rows into a staging table, typed as the table's columns; return the name to select from."""
        ...

    def lookup(self, table: str, key: Sequence[str]) -> AbstractContextManager[object]:
        """Run statements that look up the staged rows in a table by these columns."""
        ...

    def create_view(self, name: str, query: str) -> None:
        """Create or replace a view."""
        ...

    def close(self) -> None: ...
