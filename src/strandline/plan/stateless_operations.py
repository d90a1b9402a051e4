"""Define stateless operations: filter rows, compute columns, or call a user function.

An expression is Spark SQL in a string, or a Polars expression. SQL runs in Spark, before rows cross to Python. Polars
expressions and functions run in Python, on whole batches.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.errors import InvalidStep
from strandline.model.lookup_join import LookupJoin
from strandline.model.steps import WindowedStep


@dataclass(frozen=True, slots=True)
class Sql:
    """An expression in Spark SQL."""

    text: str


@dataclass(frozen=True, slots=True)
class Polars:
    """A Polars expression; two are equal if their texts are."""

    text: str
    expression: Any = field(compare=False, repr=False)


Expr = Sql | Polars


@dataclass(frozen=True, slots=True)
class Where:
    """Keep rows for which the condition is true; drop rows for which it is false or null."""

    condition: Expr


@dataclass(frozen=True, slots=True)
class Select:
    """Compute columns; `beside` keeps the other columns."""

    columns: tuple[tuple[str, Expr], ...]
    beside: bool


@dataclass(frozen=True, slots=True)
class Map:
    """Apply a function from a frame to a frame with as many rows."""

    function: Callable[[Any], Any]
    ddl: str


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Apply a function from a row, as a mapping, to any number of rows."""

    function: Callable[[dict[str, Any]], Any]
    ddl: str


@dataclass(frozen=True, slots=True)
class Spread:
    """Add a salt to elements of hot keys; see `salting`."""

    keys: tuple[str, ...]
    salts: int
    least: int
    columns: tuple[tuple[str, str | None], ...]
    step: WindowedStep
    """The original step. Elements on which its user code fails become dead letters before they are held."""


@dataclass(frozen=True, slots=True)
class Gather:
    """Unpack the elements of hot keys from the panes that held them."""

    columns: tuple[tuple[str, str | None], ...]


Operation = Where | Select | Map | FlatMap | Spread | Gather | LookupJoin


def expression(given: Any) -> Expr:
    """Convert a user's expression: SQL in a string, or Polars."""
    if isinstance(given, str):
        if not given.strip():
            raise InvalidStep(
                "an expression is empty", hint='write Spark SQL, as in "score * 2", or a Polars expression'
            )
        return Sql(given)
    # Recognized by its methods, so that a plan can be built without importing Polars.
    if hasattr(given, "meta") and hasattr(given, "over"):
        return Polars(str(given), given)
    raise InvalidStep(
        f"{given!r} is not an expression",
        hint='write Spark SQL, as in "score * 2", or a Polars expression, as in pl.col("score") * 2',
    )


def opposite(given: Expr) -> Expr:
    """Return the condition that is true where this one is false or null."""
    if isinstance(given, Sql):
        return Sql(f"not coalesce({given.text}, false)")
    return expression(~given.expression.fill_null(value=False))


def both(one: Expr, other: Expr) -> Expr:
    """Return the conjunction of two conditions."""
    if isinstance(one, Sql) and isinstance(other, Sql):
        return Sql(f"({one.text}) and ({other.text})")
    if isinstance(one, Polars) and isinstance(other, Polars):
        return expression(one.expression & other.expression)
    raise InvalidStep("the conditions of a branch mix SQL and Polars", hint="write all of them in SQL or all in Polars")


def is_native(operation: Operation) -> bool:
    """Tell whether Spark runs the operation."""
    match operation:
        case Where(condition):
            return isinstance(condition, Sql)
        case Select(columns, _):
            return all(isinstance(each, Sql) for _, each in columns)
        case Map() | FlatMap() | Spread() | Gather() | LookupJoin():
            return False


def names_only(operation: Operation) -> bool:
    """Tell whether the operation only selects columns by name, which is the same in SQL and Polars."""
    return isinstance(operation, Select) and all(
        isinstance(each, Sql) and each.text.isidentifier() for _, each in operation.columns
    )


def in_polars(columns: Iterable[tuple[str, Expr]]) -> tuple[tuple[str, Expr], ...]:
    """Convert bare column names to Polars expressions."""
    from polars import col  # noqa: PLC0415 - needed only where Polars is loaded already

    return tuple((name, expression(col(each.text)) if isinstance(each, Sql) else each) for name, each in columns)


def types_after(
    operation: Operation, before: Mapping[str, str | None], parse: Callable[[str], Mapping[str, str]]
) -> dict[str, str | None]:
    """Return the columns after an operation, with their types where they are known without Spark."""
    match operation:
        case Where():
            return dict(before)
        case Select(columns, beside):
            computed = {name: before.get(each.text) if isinstance(each, Sql) else None for name, each in columns}
            return {**before, **computed} if beside else computed
        case Map(_, ddl) | FlatMap(_, ddl):
            return dict(parse(ddl))
        case Spread():
            return {**before, "@salt": "long", "@held": None}
        case Gather(columns):
            return {**before, **dict(columns)}
        case LookupJoin(columns=added):
            return {**before, **{new: kind for _, new, kind in added}}


def describe(operation: Operation) -> str:
    """Describe an operation, for `explain`."""
    match operation:
        case Where(condition):
            return f"where {condition.text}"
        case Select(columns, beside):
            written = ", ".join(name if each.text == name else f"{each.text} as {name}" for name, each in columns)
            return f"{'with' if beside else 'select'} {written}"
        case Map(function, _):
            return f"map {_name(function)}"
        case FlatMap(function, _):
            return f"flat_map {_name(function)}"
        case Spread(keys, salts):
            return f"salt hot keys of {', '.join(keys)} with {salts} salts"
        case Gather():
            return "unpack salted elements"
        case LookupJoin():
            return str(operation)


def _name(function: Callable[..., Any]) -> str:
    """Return the name of a function, of the function inside a partial, or of a callable object's class."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))
