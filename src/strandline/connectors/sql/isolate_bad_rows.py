"""Find the rows of a batch that a database refuses, by trying, and write the others."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from strandline.connectors.sql.dialect import Refusal
from strandline.formats.refused_rows import Refused, row_of

Put = Callable[[pl.DataFrame], None]
Savepoint = Callable[[], AbstractContextManager[None]]

FIRST_REFUSED: Final = 100
"""If this many rows are refused before one is accepted, other rows are tried next, from all over the batch."""
LEAST: Final = 1_000
"""A table is wrong, not the rows, only if it refused at least this many rows and has never accepted one."""
_ATTEMPTS: Final = 10
"""How often a single row is tried that lost a race for a new key. The winner's row is found by the next attempt."""


@dataclass(slots=True)
class Isolation:
    """The result of writing rows: how many were accepted, and the refused ones."""

    put: Put
    savepoint: Savepoint
    taken: int = 0
    refused: list[Refused] = field(default_factory=list)

    def write(self, rows: pl.DataFrame, is_wrong: Callable[[list[Refused]], None]) -> None:
        """Write all rows but the refused ones, by bisection: one bad row among a million costs twenty attempts.

        `is_wrong` is called when a sample over the whole batch, or all of it, was refused. It raises if the table is
        wrong.
        """
        parts, sampled = [rows], False
        while parts:
            part = parts.pop()
            problem = self._try(part)
            if problem is None:
                continue
            if part.height > 1:
                half = part.height // 2
                parts += [part[half:], part[:half]]
                continue
            self._refuse(part, problem)
            if not (sampled or self.taken) and len(self.refused) >= FIRST_REFUSED and parts:
                sampled, rest = True, self._sample(pl.concat(reversed(parts)))
                parts = [rest] if rest.height else []
                if parts and not self.taken:
                    is_wrong(self.refused)
        if not self.taken and self.refused:
            is_wrong(self.refused)

    def _sample(self, rest: pl.DataFrame) -> pl.DataFrame:
        """Try rows spread over the rest of a batch until one is accepted; return the rows that were not tried."""
        step = max(rest.height // LEAST, 1)
        tried = 0
        for place in range(0, rest.height, step):
            part = rest[place : place + 1]
            problem = self._try(part)
            tried += 1
            if problem is None:
                break
            self._refuse(part, problem)
        places = pl.int_range(rest.height, eager=True)
        return rest.filter((places % step != 0) | (places >= tried * step))

    def _try(self, part: pl.DataFrame) -> Refusal | None:
        """Write some rows; return why they were refused, None if they were not."""
        attempts = _ATTEMPTS if part.height == 1 else 2
        while True:
            attempts -= 1
            try:
                with self.savepoint(), _values_refused():
                    self.put(part)
            except Refusal as problem:
                if not (problem.race and attempts):
                    return problem
            else:
                self.taken += part.height
                return None

    def _refuse(self, part: pl.DataFrame, problem: Refusal) -> None:
        self.refused.append(Refused(row_of(part), str(problem)))


@contextmanager
def _values_refused() -> Iterator[None]:
    """Convert errors about values that are raised before they reach the database."""
    try:
        yield
    except (ValueError, ArithmeticError, TypeError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as problem:
        raise Refusal(str(problem).partition("\n")[0] or type(problem).__name__) from None
