"""Define joins of tables: each input is a changelog, and the result is the join of their current rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from strandline.errors import InvalidStep
from strandline.model.elements import ZERO, Duration, TimeDomain
from strandline.model.joins import How

MOST_TABLES: Final = 16


def table_role(number: int) -> str:
    """Return the role of an input of a table join, from its number."""
    return f"table {number + 1}"


@dataclass(frozen=True, slots=True)
class TableJoin:
    """Join the current rows of two or more tables that have equal keys, and emit the changes of the result.

    An insertion adds a row to its table, a retraction removes one equal row. The tables are joined from first to last,
    each with the result of those before it, all on one key.
    """

    joins: tuple[How, ...] = (How.INNER,)
    """How each table after the first is joined."""
    ttl: Duration | None = None
    """The rows of a key are forgotten when it has not changed for this long; None keeps every key forever."""
    ttl_time: TimeDomain = TimeDomain.EVENT
    one_row: bool = False
    """Whether the planner knows that no table has more than one row of a key at a time."""
    renamed: tuple[tuple[str, str, str], ...] = ()
    """Columns that have another name in the result: role of their input, name there, name in the result."""
    columns: tuple[tuple[str, str, str | None], ...] = ()
    """The columns of the result besides the key: role of their input, name in the result, type in DDL if known."""
    time: TimeDomain = TimeDomain.EVENT

    def __post_init__(self) -> None:
        if not 1 <= len(self.joins) < MOST_TABLES:
            raise InvalidStep(
                f"a join of {len(self.joins) + 1} tables is not possible",
                hint=f"join from 2 to {MOST_TABLES} tables, and the result with further ones",
            )
        if self.ttl is not None and self.ttl <= ZERO:
            raise InvalidStep(f"keys that are forgotten after {self.ttl} are never kept", hint="give a length above 0")

    @property
    def tables(self) -> int:
        return len(self.joins) + 1

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(table_role(number) for number in range(self.tables))

    @property
    def shown(self) -> tuple[int, ...]:
        """Return the tables whose columns the result has: not those that only filter."""
        return (0, *(n for n, how in enumerate(self.joins, 1) if how not in (How.SEMI, How.ANTI)))

    def names(self, role: str) -> dict[str, str]:
        """Return the columns of an input that have another name in the result, with that name."""
        return {name: new for of, name, new in self.renamed if of == role}

    def combined(self, has_rows: Sequence[bool]) -> tuple[int, ...] | None:
        """Return the tables whose rows are combined to rows of the result, from which tables have a row of a key.

        Columns of other tables are null. None: the key has no row in the result.
        """
        found: tuple[int, ...] | None = (0,) if has_rows[0] else None
        for number, how in enumerate(self.joins, 1):
            found = _joined(found, number, how, has_row=has_rows[number])
        return found


def _joined(found: tuple[int, ...] | None, number: int, how: How, *, has_row: bool) -> tuple[int, ...] | None:
    with_it = (*(found or ()), number) if has_row else found
    match how:
        case How.INNER:
            return with_it if has_row and found is not None else None
        case How.LEFT:
            return None if found is None else with_it
        case How.RIGHT:
            return with_it if has_row else None
        case How.FULL:
            return with_it
        case How.SEMI:
            return found if has_row else None
        case How.ANTI:
            return None if has_row else found
    assert_never(how)
