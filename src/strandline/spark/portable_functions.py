"""Check that the functions of a pipeline can be sent to workers; name the variable that cannot."""

import builtins
import inspect
from collections.abc import Iterator
from typing import Any, Final

from pyspark import cloudpickle

from strandline.errors import InvalidStep
from strandline.model.aggregates import UserAggregate
from strandline.model.lookup_join import LookupJoin
from strandline.model.steps import WindowedStep
from strandline.plan.nodes import KeyedNode, Root, Stateless, walk
from strandline.plan.stateless_operations import FlatMap, Map, Polars, Select, Where, describe

_DEEPEST: Final = 4
_HINT: Final = "create it inside the function, or pass plain values such as numbers, texts and paths"


def require_portable(root: Root) -> None:
    """Raise for the first function of a pipeline that cannot be sent to a worker."""
    for node in walk(root):
        for what, sent in _sent_by(node):
            _require(what, sent)


def _sent_by(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a node sends to workers, each with its name in messages."""
    match node:
        case Stateless(_, Map(function, _) | FlatMap(function, _) as operation):
            yield describe(operation), function
        case Stateless(_, LookupJoin(table) as operation):
            yield describe(operation), getattr(table, "function", table)
        case Stateless(_, Where(Polars() as condition) as operation):
            yield describe(operation), condition.expression
        case Stateless(_, Select(columns, _) as operation):
            for _, each in columns:
                if isinstance(each, Polars):
                    yield describe(operation), each.expression
        case KeyedNode() if isinstance(node.operator, WindowedStep):
            for name, aggregate in node.operator.aggregates:
                if isinstance(aggregate, UserAggregate):
                    parts = ("create", "add", "result", "merge", "retract")
                    yield from ((f"{part} of {name}", getattr(aggregate, part)) for part in parts)
        case _:
            pass


def _require(what: str, sent: Any) -> None:
    problem = _problem(sent)
    if problem is None:
        return
    if not callable(sent):
        hint = "call functions of Python in map(function, columns), or on top of plain values"
        raise InvalidStep(f"«{what}» cannot be sent to Spark's workers", detail=_line(problem), hint=hint) from problem
    where = _culprit(sent)
    if where is None:
        raise InvalidStep(f"«{what}» cannot be sent to Spark's workers", detail=_line(problem), hint=_HINT) from problem
    name, value = where
    raise InvalidStep(
        f"«{what}» uses the variable {name!r}, which cannot be sent to Spark's workers",
        detail=f"{name} is a {type(value).__module__}.{type(value).__qualname__}: {_line(problem)}",
        hint=_HINT,
    ) from problem


def _problem(value: Any) -> Exception | None:
    try:
        cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    except Exception as problem:  # noqa: BLE001 - a value of the user may raise anything when it is pickled
        return problem
    return None


def _culprit(sent: Any, depth: int = 0) -> tuple[str, Any] | None:
    """Return the innermost variable that cannot be pickled: of a closure, a global, a default, or an attribute."""
    if depth > _DEEPEST:
        return None
    for name, value in _variables(sent):
        if _problem(value) is not None:
            inner = _culprit(value, depth + 1)
            return inner if inner is not None and inspect.isroutine(value) else _prefixed(name, value, inner)
    return None


def _prefixed(name: str, value: Any, inner: tuple[str, Any] | None) -> tuple[str, Any]:
    return (name, value) if inner is None else (f"{name}.{inner[0]}", inner[1])


def _variables(sent: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables that travel with a function, or the attributes of an object."""
    if inspect.ismethod(sent):
        yield "self", sent.__self__
        sent = sent.__func__
    if inspect.isfunction(sent):
        closed = inspect.getclosurevars(sent)
        yield from closed.nonlocals.items()
        yield from closed.globals.items()
        for name, parameter in inspect.signature(sent).parameters.items():
            if parameter.default is not parameter.empty:
                yield name, parameter.default
    elif hasattr(sent, "func") and hasattr(sent, "args") and hasattr(sent, "keywords"):  # functools.partial
        yield getattr(sent.func, "__name__", "func"), sent.func
        yield from ((f"argument {number}", each) for number, each in enumerate(sent.args, 1))
        yield from sent.keywords.items()
    elif isinstance(sent, dict):
        yield from ((str(name), each) for name, each in sent.items())
    elif hasattr(sent, "__dict__") and type(sent).__module__ != builtins.__name__:
        yield from vars(sent).items()


def _line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0][:200]
