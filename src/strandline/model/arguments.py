"""Check the types of the arguments of public functions at each call, by their annotations.

A wrong argument raises `InvalidArgument` with the argument, what was given, what is taken, and an example. A text is
converted where the annotation is an enumeration of texts: `accumulate("retracting")`.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin

from strandline.errors import InvalidArgument
from strandline.model.suggestions import did_you_mean

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

_LONGEST: Final = 60
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "str": ("a text", ""),
    "int": ("a whole number", ""),
    "float": ("a number", ""),
    "bool": ("True or False", ""),
    "bytes": ("bytes", ""),
    "NoneType": ("None", ""),
    "Path": ("a path", ""),
    "datetime": ("a datetime", ""),
    "timedelta": ("a timedelta", ""),
    "Duration": ("a length of time", 'write it like seconds=10, "10s" or timedelta(seconds=10)'),
    "strandline.model.windows": ("a window", "write it like sl.tumbling(minutes=2) or sl.session(minutes=30)"),
    "strandline.model.triggers": ("a trigger", "write it like sl.after_count(100) or sl.every(seconds=30)"),
    "strandline.model.aggregates": ("an aggregate", 'write it like sl.sum("score") or sl.count()'),
    "strandline.model.evictors": ("an evictor", "write it like sl.keep_last(10)"),
    "Watermark": ("a watermark", "write it like sl.bounded(seconds=10)"),
    "Source": ("a source", 'write it like sl.kafka("scores", …) or sl.files("in/", …)'),
    "Sink": ("a sink", 'write it like sl.sqlite("totals.db") or sl.console()'),
    "LookupTable": ("a lookup table", 'write it like sl.lookup_postgres("users", "user_id long, name string", …)'),
    "DeadLetters": ("a sink of dead letters", "give dead_table(…), dead_files(…) or dead_topic(…)"),
    "Pipeline": ("a pipeline", "end a stream with write(sink)"),
    "Elements": ("a stream of elements", "start one with sl.read(source)"),
    "Decoder": ("a format", 'write it like sl.json("team string, at timestamp")'),
    "Format": ("a format", 'write it like sl.json("team string, total long")'),
    "Secret": ("a reference to a secret", 'write it like "env:NAME" or "file:path"'),
    "Security": ("security settings", "write sl.tls(…) or sl.sasl(…)"),
    "Registry": ("a schema registry", 'write it like sl.registry("http://localhost:8081")'),
    "FailureBudget": ("a failure budget", "write it like sl.failure_budget(0.01)"),
}
"""What a type is called in a message, and how a value of it is written. By class, or by the module of a family."""


class _Wrong(Exception):
    """Raised inside a check; becomes an InvalidArgument with the function and the argument."""

    def __init__(self, hint: str = "") -> None:
        super().__init__(hint)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of a checked function: its name, its type, and whether it takes many arguments."""

    name: str
    type: Any
    kind: Any

    @property
    def takes_many(self) -> bool:
        return self.kind is inspect.Parameter.VAR_POSITIONAL


def checked(function: Function) -> Function:
    """Check the arguments of a function at each call, by its annotations."""
    known: list[tuple[inspect.Signature, dict[str, _Parameter]]] = []

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if not known:
            known.append(_signature(function))
        signature, parameters = known[0]
        try:
            bound = signature.bind(*args, **named)
        except TypeError as problem:
            raise _wrong_call(function, signature, named, str(problem)) from None
        for name, given in bound.arguments.items():
            if name in parameters:
                bound.arguments[name] = _taken(function, parameters[name], given)
        return function(*bound.args, **bound.kwargs)

    return cast("Function", call)


def checked_methods(owner: Class) -> Class:
    """Check the arguments of every public method of a class."""
    for name, value in list(vars(owner).items()):
        if inspect.isfunction(value) and not name.startswith("_"):
            setattr(owner, name, checked(value))
    return owner


def check_fields(value: Any) -> None:
    """Check the fields of a value that users construct themselves. Called from its `__post_init__`."""
    owner = type(value)
    for each in fields(value):
        parameter = _Parameter(each.name, _resolved(each.type, owner), inspect.Parameter.KEYWORD_ONLY)
        _one(owner, parameter, each.name, getattr(value, each.name))


def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, _Parameter]]:
    signature = inspect.signature(function)
    found = {
        name: _Parameter(name, _resolved(each.annotation, function), each.kind)
        for name, each in signature.parameters.items()
        if name != "self" and each.annotation is not each.empty
    }
    return signature, found


def _resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    """Return a type from its annotation. One that only type checkers import is not checked here."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, getattr(function, "__globals__", {}))  # noqa: S307 - an annotation of this package
    except (NameError, AttributeError):
        return Any


def _wrong_call(
    function: Callable[..., Any], signature: inspect.Signature, named: Mapping[str, Any], problem: str
) -> InvalidArgument:
    """Describe a call with missing, unknown or too many arguments."""
    names = [name for name in signature.parameters if name != "self"]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    unknown = [name for name in named if name not in names and not takes_any]
    shown = f"it takes {', '.join(names)}" if names else "it takes no arguments"
    if unknown:
        hint = did_you_mean(unknown[0], names, "leave it out")
        return InvalidArgument(f"{function.__name__}(…) has no argument {unknown[0]!r}", detail=shown, hint=hint)
    return InvalidArgument(f"{function.__name__}(…): {problem}", detail=shown, hint="see docs/reference/names.md")


def _taken(function: Callable[..., Any], parameter: _Parameter, given: Any) -> Any:
    """Return what the function takes for a given argument, or raise."""
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL:
            return tuple(_one(function, parameter, parameter.name, each) for each in given)
        case inspect.Parameter.VAR_KEYWORD:
            return {name: _one(function, parameter, name, each) for name, each in given.items()}
        case _:
            return _one(function, parameter, parameter.name, given)


def _one(function: Callable[..., Any], parameter: _Parameter, name: str, given: Any) -> Any:
    try:
        return _value(parameter.type, given)
    except _Wrong as wrong:
        words, example = _described(parameter.type)
        raise InvalidArgument(
            f"{function.__name__}(…) cannot take {_shown(given, parameter.type)} as {name}",
            detail=f"{name} is {words}",
            hint=wrong.hint or _way_out(function, parameter, given) or example or f"give {words}",
        ) from None


def _way_out(function: Callable[..., Any], parameter: _Parameter, given: Any) -> str:
    """Return a hint for common slips: a list in place of several arguments, or a function that was not called."""
    if parameter.takes_many and isinstance(given, list | tuple) and given:
        several = ", ".join(_short(each) for each in given)
        return f"give them one by one: {function.__name__}({several})"
    if inspect.isfunction(given):
        return f"call it: {given.__name__}(…)"
    return ""


def _value(kind: Any, given: Any) -> Any:
    """Return a value as its type, a text as a member of its enumeration; raise `_Wrong` for any other value."""
    origin = get_origin(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return given
    if origin in (Union, UnionType):
        return _any_of(get_args(kind), given)
    if origin is Literal:
        return _same(given, any(given == each and type(given) is type(each) for each in get_args(kind)))
    if origin is not None:
        return _container(origin, get_args(kind), given)
    if kind is None:
        return _same(given, given is None)
    if isinstance(given, type):
        raise _Wrong
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _member(kind, given)
    return _scalar(kind, given)


def _scalar(kind: Any, given: Any) -> Any:
    if kind is int:
        return _same(given, isinstance(given, int) and not isinstance(given, bool))
    if kind is float:
        fine = isinstance(given, int | float) and not isinstance(given, bool)
        return _same(given, fine and math.isfinite(given))
    try:
        return _same(given, isinstance(given, kind))
    except TypeError:
        return given  # a protocol that only type checkers know


def _same(given: Any, fine: bool) -> Any:
    if not fine:
        raise _Wrong
    return given


def _member(kind: type[StrEnum], given: Any) -> StrEnum:
    if isinstance(given, kind):
        return given
    choices = ", ".join(kind)
    if type(given) is not str:
        raise _Wrong(f"choose one of {choices}")
    try:
        return kind(given)
    except ValueError:
        raise _Wrong(did_you_mean(given, kind, f"choose one of {choices}")) from None


def _any_of(kinds: Sequence[Any], given: Any) -> Any:
    """Try each member of a union: enumerations first, so that their texts are converted."""
    enumerated = [each for each in kinds if isinstance(each, type) and issubclass(each, StrEnum)]
    texts = [] if enumerated else [each for each in kinds if each is str]
    others = [each for each in kinds if each not in enumerated and each is not str]
    hint = ""
    for kind in (*enumerated, *texts, *others):
        try:
            return _value(kind, given)
        except _Wrong as wrong:
            hint = hint or wrong.hint
    raise _Wrong(hint)


def _container(origin: Any, inside: tuple[Any, ...], given: Any) -> Any:
    if origin is Callable:
        return _function(inside, given)
    if origin is Iterable:
        return _items(inside[0], given)
    if isinstance(given, type) or not isinstance(given, origin):
        raise _Wrong
    if isinstance(given, Mapping):
        return {_value(inside[0], key): _value(inside[1], each) for key, each in given.items()}
    if origin is tuple and Ellipsis not in inside:
        if len(given) != len(inside):
            raise _Wrong
        return tuple(_value(kind, each) for kind, each in zip(inside, given, strict=True))
    if isinstance(given, str):
        return _same(given, inside[0] is str)
    return tuple(_value(inside[0], each) for each in given)


def _items(kind: Any, given: Any) -> Any:
    """Return several values in a fixed order: a set would have another one in each process."""
    if isinstance(given, str):
        return _same(given, kind is str)
    if isinstance(given, bytes | Mapping | type) or not isinstance(given, Iterable):
        raise _Wrong
    found = tuple(_value(kind, each) for each in given)
    return tuple(sorted(found)) if isinstance(given, AbstractSet) else found


def _function(inside: tuple[Any, ...], given: Any) -> Any:
    if not callable(given):
        raise _Wrong
    wanted = inside[0] if inside else ...
    if wanted is ... or isinstance(given, type):
        return given
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):
        return given  # a function of C may have none
    try:
        signature.bind(*wanted)
    except TypeError:
        count = "one argument" if len(wanted) == 1 else f"{len(wanted)} arguments"
        raise _Wrong(f"it is called with {count if wanted else 'no arguments'}: take as many") from None
    return given


def _described(kind: Any) -> tuple[str, str]:
    """Return what a type is called, and how a value of it is written."""
    words, example = list[str](), ""
    for each in _flat(kind):
        name, written = _words(each)
        words += [name] if name not in words else []
        example = example or written
    if "a length of time" in words:
        words = [each for each in words if each not in ("a timedelta", "a text")]
    if "None" in words:
        words = [each for each in words if each != "None"] + ["None"]
    return (" or ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} or {words[-1]}"), example


def _flat(kind: Any) -> Iterator[Any]:
    if get_origin(kind) in (Union, UnionType):
        enumerated = any(isinstance(each, type) and issubclass(each, StrEnum) for each in get_args(kind))
        for each in get_args(kind):
            if not (enumerated and each is str):
                yield from _flat(each)
    else:
        yield kind


def _words(kind: Any) -> tuple[str, str]:
    if isinstance(kind, type) and get_origin(kind) is None and issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}", ""
    origin = get_origin(kind)
    if origin is Callable:
        return "a function", ""
    if origin is Literal:
        return f"one of {', '.join(map(repr, get_args(kind)))}", ""
    if origin is not None:
        items = [_described(each)[0] for each in get_args(kind) if each is not Ellipsis]
        name = "a mapping" if issubclass(origin, Mapping) else "a tuple" if origin is tuple else "a list"
        return f"{name} of {' to '.join(items) if name == 'a mapping' else ', '.join(items)}", ""
    if kind is NoneType or kind is None:
        return _WORDS["NoneType"]
    name = getattr(kind, "__name__", str(kind))
    return _WORDS.get(name) or _WORDS.get(getattr(kind, "__module__", "")) or (f"a {name}", "")


def _shown(given: Any, kind: Any) -> str:
    """Show a wrong argument; only its type where it could be a secret."""
    if any(getattr(each, "__name__", "") == "Secret" for each in _deep(kind)):
        return f"this {type(given).__name__}"
    return _short(given)


def _deep(kind: Any) -> Iterator[Any]:
    yield kind
    for each in get_args(kind):
        if not isinstance(each, list):
            yield from _deep(each)


def _short(given: Any) -> str:
    if inspect.isfunction(given):
        return f"the function {given.__name__}"
    if isinstance(given, type):
        return f"the class {given.__name__}"
    try:
        text = repr(given)
    except Exception:  # noqa: BLE001 - a user's value may raise anything
        text = ""
    if not text or len(text) > _LONGEST or text.startswith("<"):
        return f"a value of type {type(given).__name__}"
    return text
