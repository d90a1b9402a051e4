"""Find records with values of a wrong type, without a run of the parser for each.

The parser's error for such a record depends on its columns in their order and on the types of their values, but not on
the values. So records are grouped by these, and the parser reports the error once a group. A record on which the parser
may not agree with the standard library is left to the parser.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import polars as pl
import pyarrow as pa

_VALUE_INDEPENDENT: Final = ("JSON parse error: Column(",)
"""Beginning of errors that depend on the types of values alone."""
_MOST_SHAPES: Final = 256
"""Shapes to ask the parser about; more mean that the records have no common shape."""
_DIGITS_OF_AN_INT: Final = 9
_DIGITS_OF_A_LONG: Final = 18
_LONGEST_FRACTION: Final = 40


class _Unsure(ValueError):
    """Raised for a record on which the parser may not agree with the standard library."""


def suspect_pattern(schema: pa.Schema) -> str:
    """Build a regular expression that finds records which may have a value of a wrong type."""
    starts: dict[str, list[str]] = {}
    for name, kind in _fields(schema):
        starts.setdefault(_wrong_start(kind), []).append(re.escape(name))
    return "|".join(rf'"(?:{"|".join(names)})"\s*:\s*{start}' for start, names in starts.items())


def _fields(parent: Any) -> Iterator[tuple[str, pa.DataType]]:
    for field in parent:
        yield field.name, field.type
        kind = field.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            yield from _fields(kind)


def _wrong_start(kind: pa.DataType) -> str:
    """Match the beginning of values that are not of this type; null is of every type."""
    if pa.types.is_integer(kind):
        return r"(?:[^-0-9n\s]|-?[0-9]+[.eE])"
    if pa.types.is_floating(kind):
        return r"[^-0-9nNI\s]"
    if pa.types.is_decimal(kind):
        return r'[^-"0-9n\s]'
    if pa.types.is_boolean(kind):
        return r"[^tfn\s]"
    if pa.types.is_list(kind):
        return r"[^\[n\s]"
    return r"[^{n\s]" if pa.types.is_struct(kind) else r'[^"n\s]'


def find_type_errors(lines: pl.Series, schema: pa.Schema, error_of: Callable[[str], str | None]) -> dict[int, str]:
    """Return the parser's error for each record with a value of a wrong type, by its place."""
    columns, leaf = frozenset(schema.names), _LEAVES.get
    known: dict[Any, _TypeError | None] = {}
    found: dict[int, str] = {}
    for place, line in enumerate(lines):
        try:
            pairs, end = _parse(line)
            shape = tuple([(name, leaf(type(each)) or _shape(each)) for name, each in pairs if name in columns])
        except (ValueError, RecursionError):
            continue
        if end != len(line):
            continue
        if shape not in known:
            if len(known) == _MOST_SHAPES:
                continue
            known[shape] = _learn(error_of(line), [pair for pair in pairs if pair[0] in columns], schema)
        error = known[shape]
        if error is not None:
            found[place] = error.text if error.column is None else error.text + _value(pairs, error.column)
    return found


@dataclass(frozen=True, slots=True)
class _TypeError:
    """The parser's error for records of one shape; it ends with the value of a column, if one is named."""

    text: str
    column: str | None = None


def _learn(error: str | None, pairs: "_Pairs", schema: pa.Schema) -> _TypeError | None:
    """Decide which part of an error is the same for all records of a shape; None if that is not known."""
    if error is None or error.startswith(_VALUE_INDEPENDENT):
        return None if error is None else _TypeError(error)
    column = _fraction_for_integer(pairs, schema)
    if column is None or not error.endswith(_value(pairs, column)):
        return None
    return _TypeError(error.removesuffix(_value(pairs, column)), column)


def _fraction_for_integer(pairs: "_Pairs", schema: pa.Schema) -> str | None:
    """Return the integer column that has a fraction, if no other value of the record can be out of range."""
    found: list[str] = []
    for name, each in pairs:
        kind = schema.field(name).type
        integer = pa.types.is_integer(kind)
        if integer and isinstance(each, _Fraction):
            found.append(name)
        elif isinstance(each, tuple | list | _Long) or pa.types.is_decimal(kind) or (integer and kind.bit_width < 32):
            return None
    return found[0] if len(found) == 1 else None


def _value(pairs: "_Pairs", column: str) -> str:
    for name, each in pairs:
        if name == column:
            return str(each)
    raise KeyError(column)


class _Fraction(str):
    """The text of a number with a decimal point."""

    __slots__ = ()


class _Long(str):
    """The text of a whole number that may be out of the range of an int."""

    __slots__ = ()


_Pairs = Sequence[tuple[str, Any]]
_LEAVES: Final[dict[type, str]] = {
    str: "string", int: "number", _Long: "long", _Fraction: "fraction", bool: "boolean", type(None): "null",
}  # fmt: skip


def _shape(value: Any) -> Any:
    """Return the types of the values in an object or a list."""
    if isinstance(value, tuple):
        return tuple([(name, _LEAVES.get(type(each)) or _shape(each)) for name, each in value])
    shapes: list[Any] = []
    for each in value:
        shape = _LEAVES.get(type(each)) or _shape(each)
        if not shapes or shapes[-1] != shape:
            shapes.append(shape)
    return ("array", *shapes)


def _whole(text: str) -> int | _Long:
    if len(text) <= _DIGITS_OF_AN_INT:
        return 0
    if len(text) > _DIGITS_OF_A_LONG:
        raise _Unsure
    return _Long(text)


def _fraction(text: str) -> _Fraction:
    # A number with an exponent may be out of the range of a double.
    if len(text) > _LONGEST_FRACTION or "e" in text or "E" in text:
        raise _Unsure
    return _Fraction(text)


def _refuse_constant(text: str) -> NoReturn:
    raise _Unsure(text)


# Objects are tuples of pairs; numbers whose text matters are texts.
_parse: Final = json.JSONDecoder(
    object_pairs_hook=tuple, parse_int=_whole, parse_float=_fraction, parse_constant=_refuse_constant
).raw_decode
