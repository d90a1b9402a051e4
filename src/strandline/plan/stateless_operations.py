"""What a stateless step does to its rows: keep some, compute columns, or hand them to a function of the user's.

An expression is Spark SQL, as text, or Polars. SQL runs natively, before anything crosses to Python; Polars expressions
and functions run in Python, on whole batches.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.errors import InvalidStep
from strandline.model.steps import WindowedStep


@dataclass(frozen=True, slots=True)
class Sql:
    """An expression in Spark SQL."""

    text: str


@dataclass(frozen=True, slots=True)
class Polars:
    """A Polars expression; told apart from others by how it is written."""

    text: str
    expression: Any = field(compare=False, repr=False)


Expr = Sql | Polars


@dataclass(frozen=True, slots=True)
class Where:
    """Keeps the rows of which the condition is true: neither those where it is false, nor where it is null."""

    condition: Expr


@dataclass(frozen=True, slots=True)
class Select:
    """Computes columns; the others stay where `beside` says so."""

    columns: tuple[tuple[str, Expr], ...]
    beside: bool


@dataclass(frozen=True, slots=True)
class Map:
    """A function from a frame to one of as many rows."""

    function: Callable[[Any], Any]
    ddl: str


@dataclass(frozen=True, slots=True)
class FlatMap:
    """A function from a row, as a mapping, to any number of them."""

    function: Callable[[dict[str, Any]], Any]
    ddl: str


@dataclass(frozen=True, slots=True)
class Spread:
    """Gives elements of hot keys places of their own: see `salting`."""

    keys: tuple[str, ...]
    salts: int
    least: int
    columns: tuple[tuple[str, str | None], ...]
    step: WindowedStep
    """The step that they go to: what its own code cannot take is told before it is held."""


@dataclass(frozen=True, slots=True)
class Gather:
    """Takes elements that were spread out of the panes that held them."""

    columns: tuple[tuple[str, str | None], ...]


Operation = Where | Select | Map | FlatMap | Spread | Gather


def expression(given: Any) -> Expr:
    """What a user wrote as an expression."""
    if isinstance(given, str):
        if not given.strip():
            raise InvalidStep(
                "an expression is empty", hint='write Spark SQL, as in "score * 2", or a Polars expression'
            )
        return Sql(given)
    # Known by what it can do, so that a plan is written without loading Polars.
    if hasattr(given, "meta") and hasattr(given, "over"):
        return Polars(str(given), given)
    raise InvalidStep(
        f"{given!r} is no expression",
        hint='write Spark SQL, as in "score * 2", or a Polars expression, as in pl.col("score") * 2',
    )


def opposite(given: Expr) -> Expr:
    """True where the condition is not: false there, or null."""
    if isinstance(given, Sql):
        return Sql(f"not coalesce({given.text}, false)")
    return expression(~given.expression.fill_null(value=False))


def both(one: Expr, other: Expr) -> Expr:
    """True where both are."""
    if isinstance(one, Sql) and isinstance(other, Sql):
        return Sql(f"({one.text}) and ({other.text})")
    if isinstance(one, Polars) and isinstance(other, Polars):
        return expression(one.expression & other.expression)
    raise InvalidStep("the conditions of a branch are partly SQL, partly Polars", hint="write all of them one way")


def is_native(operation: Operation) -> bool:
    """Whether Spark itself runs it."""
    match operation:
        case Where(condition):
            return isinstance(condition, Sql)
        case Select(columns, _):
            return all(isinstance(each, Sql) for _, each in columns)
        case Map() | FlatMap() | Spread() | Gather():
            return False


def names_only(operation: Operation) -> bool:
    """Whether it only picks columns by their names: that is the same in SQL and in Polars."""
    return isinstance(operation, Select) and all(
        isinstance(each, Sql) and each.text.isidentifier() for _, each in operation.columns
    )


def in_polars(columns: Iterable[tuple[str, Expr]]) -> tuple[tuple[str, Expr], ...]:
    """Columns, those that are bare names in Polars too."""
    from polars import col  # noqa: PLC0415 - whoever mixes the two has loaded it

    return tuple((name, expression(col(each.text)) if isinstance(each, Sql) else each) for name, each in columns)


def types_after(
    operation: Operation, before: Mapping[str, str | None], parse: Callable[[str], Mapping[str, str]]
) -> dict[str, str | None]:
    """The columns after a step, each with its type where that is known before Spark has looked."""
    match operation:
        case Where():
            return dict(before)
        case Select(columns, beside):
            made = {name: before.get(each.text) if isinstance(each, Sql) else None for name, each in columns}
            return {**before, **made} if beside else made
        case Map(_, ddl) | FlatMap(_, ddl):
            return dict(parse(ddl))
        case Spread():
            return {**before, "@salt": "long", "@held": None}
        case Gather(columns):
            return {**before, **dict(columns)}


def describe(operation: Operation) -> str:
    """In words, for `explain`."""
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
            return f"hot keys of {', '.join(keys)} spread over {salts}"
        case Gather():
            return "gathered"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
