"""Run stateless steps on whole frames: filter rows, compute columns, call user functions, and separate failed rows.

If a user function raises, it is called again on each half of its rows, until the failing rows are found. They become
dead letters with the error message; the other rows pass. If a function returns too few rows, all its rows do.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.errors import InvalidStep, hide_internal_columns
from strandline.kernel.blocks.block import OFFSET, OWN
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.panics import ANY_FAILURE

FAILED: Final = "function_failed"
LOOKUP_FAILED: Final = "lookup_failed"
"""Reason of a row whose lookup table has no usable answer."""
PROBLEM: Final = "@problem"
"""Error message of a failed row."""
EXCEPTION: Final = "@exception"
"""Name of the exception class."""
STEP: Final = "@step"
"""Step that raised the exception."""
ORIGIN: Final = "@origin"
"""Offset of the record that a row was made from, where flat_map made several rows of one."""
CHILDREN: Final = 1 << 16
"""Exclusive limit of rows made from one row. Their offsets lie between its own (multiplied by this) and the next."""

Columns = Sequence[tuple[str, str]]


class _WrongShape(InvalidStep):
    """A result that is wrong as a whole. A part of the rows by itself would give another result by chance."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Result of a step: its rows, the failed rows with PROBLEM, and how many rows it removed and added.

    `unmatched` counts the rows for which a lookup found no row.
    """

    rows: pl.DataFrame
    failed: pl.DataFrame | None = None
    filtered: int = 0
    made: int = 0
    unmatched: int = 0

    def then(self, step: Callable[[pl.DataFrame], "Passed"]) -> "Passed":
        """Run the next step on the rows of this result."""
        after = step(self.rows)
        failed = [each for each in (self.failed, after.failed) if each is not None]
        return Passed(
            after.rows,
            pl.concat(failed, how="diagonal_relaxed") if failed else None,
            self.filtered + after.filtered,
            self.made + after.made,
            self.unmatched + after.unmatched,
        )


def keep_flagged(rows: pl.DataFrame, flag: str) -> Passed:
    """Filter on a Boolean column that was computed before, and drop it."""
    kept = rows.filter(pl.col(flag)).drop(flag)
    return Passed(kept, filtered=rows.height - kept.height)


def keep(rows: pl.DataFrame, condition: pl.Expr) -> Passed:
    """Filter rows by an expression."""
    tested, failed = run_by_halves(rows, lambda each: each.filter(condition))
    lost = 0 if failed is None else failed.height
    return Passed(tested, failed, rows.height - tested.height - lost)


def compute(rows: pl.DataFrame, columns: Sequence[tuple[str, pl.Expr]], *, beside: bool) -> Passed:
    """Compute columns. `beside` keeps the other user columns; the kernel's columns always stay."""
    made = [value.alias(name) for name, value in columns]

    def run(each: pl.DataFrame) -> pl.DataFrame:
        return each.with_columns(made) if beside else each.select(pl.col(f"^{OWN}.*$"), *made)

    return Passed(*run_by_halves(rows, run))


def apply(rows: pl.DataFrame, function: Callable[[Any], Any], columns: Columns) -> Passed:
    """Call a user function on a frame; it must return as many rows."""
    shape = {name: to_polars(kind) for name, kind in columns}

    def run(each: pl.DataFrame) -> pl.DataFrame:
        made = function(_user_columns(each))
        if not isinstance(made, pl.DataFrame) or made.height != each.height:
            what = f"a frame of {made.height} rows" if isinstance(made, pl.DataFrame) else f"a {type(made).__name__}"
            raise _WrongShape(
                f"the function returned {what} for {each.height} rows",
                hint="map returns a row for each row; use where or flat_map to change their number",
            )
        return pl.concat([_kernel_columns(each), made.select(*shape).cast(pl.Schema(shape))], how="horizontal")

    return Passed(*run_by_halves(rows, run, shape))


def apply_to_each(rows: pl.DataFrame, function: Callable[[dict[str, Any]], Iterable[Any]], columns: Columns) -> Passed:
    """Call a user function on each row; it returns any number of rows (flat_map)."""
    shape = {name: to_polars(kind) for name, kind in columns}

    def run(each: pl.DataFrame) -> pl.DataFrame:
        made = [[*function(row)] for row in _user_columns(each).iter_rows(named=True)]
        widest = max(map(len, made), default=0)
        if widest >= CHILDREN:
            raise InvalidStep(f"the function returned {widest} rows for one row", hint=f"return fewer than {CHILDREN}")
        parents = [parent for parent, children in enumerate(made) for _ in children]
        numbers = [number for children in made for number in range(len(children))]
        flat = pl.DataFrame([row for children in made for row in children], schema=shape)
        own = spread(_kernel_columns(each)[parents], pl.Series(numbers, dtype=pl.Int64))
        return pl.concat([own, flat], how="horizontal")

    made, failed = run_by_halves(rows, run, shape)
    succeeded = rows.height - (0 if failed is None else failed.height)
    # A row without children counts as filtered; each child after the first counts as made.
    childless = succeeded - made.select(pl.col(OFFSET) // CHILDREN, pl.col("^@partition$")).unique().height
    return Passed(made, failed, filtered=childless, made=made.height - (succeeded - childless))


def spread(rows: pl.DataFrame, numbers: pl.Series | pl.Expr) -> pl.DataFrame:
    """Give the rows made from one record distinct offsets, and keep the offset of the record as ORIGIN."""
    origin = ORIGIN if ORIGIN in rows.columns else OFFSET
    return rows.with_columns(pl.col(OFFSET) * CHILDREN + numbers, pl.col(origin).alias(ORIGIN))


def run_by_halves(
    rows: pl.DataFrame, run: Callable[[pl.DataFrame], pl.DataFrame], shape: Any = None
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Run a step; return its rows and the failed rows. Failing input is halved until single rows remain."""
    try:
        return run(rows), None
    except ANY_FAILURE as problem:
        if rows.height < 2 or isinstance(problem, _WrongShape):
            kind = InvalidStep if isinstance(problem, _WrongShape) else type(problem)
            said = hide_internal_columns(str(problem)) if isinstance(problem, pl.exceptions.PolarsError) else problem
            message = f"{kind.__name__}: {said}"
            empty = (
                _kernel_columns(rows).clear()
                if shape is None
                else _kernel_columns(rows)
                .clear()
                .with_columns(pl.lit(None, kind).alias(name) for name, kind in shape.items())
            )
            return empty, rows.with_columns(pl.lit(message).alias(PROBLEM), pl.lit(kind.__name__).alias(EXCEPTION))
    middle = rows.height // 2
    halves = [run_by_halves(part, run, shape) for part in (rows[:middle], rows[middle:])]
    failed = [each for _, each in halves if each is not None]
    # A half without rows may lack the columns.
    passed = [each for each, _ in halves if each.height] or [halves[0][0]]
    return pl.concat(passed, how="vertical_relaxed"), pl.concat(failed, how="diagonal_relaxed") if failed else None


def _kernel_columns(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.col(f"^{OWN}.*$"))


def _user_columns(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.exclude(f"^{OWN}.*$"))
