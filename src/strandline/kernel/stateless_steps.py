"""Stateless steps over whole frames: rows kept, columns computed, functions of the user's called, failures set aside.

A function that raises is called again on halves of its rows, until those that it cannot take stand alone: they become
dead letters with what it said, and the others live.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.errors import InvalidStep
from strandline.kernel.blocks.block import OFFSET, OWN
from strandline.kernel.blocks.column_types import to_polars

FAILED: Final = "function_failed"
PROBLEM: Final = "@problem"
"""What was said when a row could not be taken."""
EXCEPTION: Final = "@exception"
"""What was raised, by its name."""
STEP: Final = "@step"
"""Where it was raised."""
ORIGIN: Final = "@origin"
"""Where one row became several: the position of the record they all come from."""
CHILDREN: Final = 1 << 16
"""The most rows that one row may become: their positions lie between its own and the next."""

Columns = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Passed:
    """Rows after a step; those it could not take, with PROBLEM; how many it left out, and how many it made more."""

    rows: pl.DataFrame
    failed: pl.DataFrame | None = None
    filtered: int = 0
    made: int = 0

    def then(self, step: Callable[[pl.DataFrame], "Passed"]) -> "Passed":
        after = step(self.rows)
        failed = [each for each in (self.failed, after.failed) if each is not None]
        return Passed(
            after.rows,
            pl.concat(failed, how="diagonal_relaxed") if failed else None,
            self.filtered + after.filtered,
            self.made + after.made,
        )


def keep_flagged(rows: pl.DataFrame, flag: str) -> Passed:
    """Rows that a condition computed before is true of."""
    kept = rows.filter(pl.col(flag)).drop(flag)
    return Passed(kept, filtered=rows.height - kept.height)


def keep(rows: pl.DataFrame, condition: pl.Expr) -> Passed:
    """Rows that a condition is true of."""
    tested, failed = _by_halves(rows, lambda each: each.filter(condition))
    lost = 0 if failed is None else failed.height
    return Passed(tested, failed, rows.height - tested.height - lost)


def compute(rows: pl.DataFrame, columns: Sequence[tuple[str, pl.Expr]], *, beside: bool) -> Passed:
    """Rows with columns computed; the user's others stay where `beside` says so, Strandline's own always do."""
    made = [value.alias(name) for name, value in columns]

    def run(each: pl.DataFrame) -> pl.DataFrame:
        return each.with_columns(made) if beside else each.select(pl.col(f"^{OWN}.*$"), *made)

    return Passed(*_by_halves(rows, run))


def apply(rows: pl.DataFrame, function: Callable[[Any], Any], columns: Columns) -> Passed:
    """Rows as a function over frames makes them, as many as before."""
    shape = {name: to_polars(kind) for name, kind in columns}

    def run(each: pl.DataFrame) -> pl.DataFrame:
        made = function(_users(each))
        if not isinstance(made, pl.DataFrame) or made.height != each.height:
            what = f"a frame of {made.height} rows" if isinstance(made, pl.DataFrame) else f"a {type(made).__name__}"
            raise InvalidStep(
                f"the function gave {what} for {each.height} rows", hint="use flat_map to change their number"
            )
        return pl.concat([_own(each), made.select(*shape).cast(pl.Schema(shape))], how="horizontal")

    return Passed(*_by_halves(rows, run, shape))


def apply_to_each(rows: pl.DataFrame, function: Callable[[dict[str, Any]], Iterable[Any]], columns: Columns) -> Passed:
    """Rows as a function over each makes them: none, one or many."""
    shape = {name: to_polars(kind) for name, kind in columns}

    def run(each: pl.DataFrame) -> pl.DataFrame:
        made = [[*function(row)] for row in _users(each).iter_rows(named=True)]
        widest = max(map(len, made), default=0)
        if widest >= CHILDREN:
            raise InvalidStep(f"one row became {widest}", hint=f"make fewer than {CHILDREN} of it")
        places = [place for place, found in enumerate(made) for _ in found]
        numbers = [number for found in made for number in range(len(found))]
        flat = pl.DataFrame([row for found in made for row in found], schema=shape)
        own = spread(_own(each)[places], pl.Series(numbers, dtype=pl.Int64))
        return pl.concat([own, flat], how="horizontal")

    made, failed = _by_halves(rows, run, shape)
    taken = rows.height - (0 if failed is None else failed.height)
    # A row that becomes none is filtered; each one more than one is made.
    none = taken - made.select(pl.col(OFFSET) // CHILDREN, pl.col("^@partition$")).unique().height
    return Passed(made, failed, filtered=none, made=made.height - (taken - none))


def spread(rows: pl.DataFrame, numbers: pl.Series | pl.Expr) -> pl.DataFrame:
    """Rows that share a record with places of their own, beside the record's."""
    origin = ORIGIN if ORIGIN in rows.columns else OFFSET
    return rows.with_columns(pl.col(OFFSET) * CHILDREN + numbers, pl.col(origin).alias(ORIGIN))


def _by_halves(
    rows: pl.DataFrame, run: Callable[[pl.DataFrame], pl.DataFrame], shape: Any = None
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """What a step makes of rows, and the rows that it raises on."""
    try:
        return run(rows), None
    except Exception as problem:  # noqa: BLE001 - a user's code may raise anything
        if rows.height < 2:
            said = f"{type(problem).__name__}: {problem}"
            empty = (
                _own(rows).clear()
                if shape is None
                else _own(rows).clear().with_columns(pl.lit(None, kind).alias(name) for name, kind in shape.items())
            )
            return empty, rows.with_columns(
                pl.lit(said).alias(PROBLEM), pl.lit(type(problem).__name__).alias(EXCEPTION)
            )
    middle = rows.height // 2
    (one, bad), (other, worse) = (_by_halves(part, run, shape) for part in (rows[:middle], rows[middle:]))
    failed = [each for each in (bad, worse) if each is not None]
    # Halves of which nothing is left do not know their columns.
    found = [each for each in (one, other) if each.height] or [one]
    return pl.concat(found, how="vertical_relaxed"), pl.concat(failed, how="diagonal_relaxed") if failed else None


def _own(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.col(f"^{OWN}.*$"))


def _users(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.exclude(f"^{OWN}.*$"))
