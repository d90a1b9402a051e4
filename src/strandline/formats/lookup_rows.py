"""Convert the values of a lookup table to the types of its columns, and name the values that do not fit."""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import polars as pl

from strandline.errors import InvalidStep
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.stateless_steps import PROBLEM
from strandline.model import ddl

_RANGES: Final = {"byte": 7, "tinyint": 7, "short": 15, "smallint": 15, "int": 31, "integer": 31}
_TRUE, _FALSE = ("true", "t", "1", "yes"), ("false", "f", "0", "no")


def columns_of(text: str, function: str) -> Mapping[str, str]:
    """Parse the columns of a lookup table; each has a single value."""
    kinds = ddl.parse(text)
    ddl.require_types(kinds)
    for name, kind in kinds.items():
        if ddl.is_nested(kind):
            raise InvalidStep(
                f"{function} cannot read the column {name!r}", detail=f"it is a {kind}", hint="leave it out"
            )
    return kinds


def typed_rows(kinds: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> pl.DataFrame:
    """Return rows as a frame of these columns. A row with a value that does not fit has nulls, and says so."""
    readers = [(name, kind, _reader(kind)) for name, kind in kinds.items()]
    made: list[list[Any]] = []
    for row in rows:
        values: list[Any] = []
        problem: str | None = None
        for (name, kind, read), value in zip(readers, row, strict=True):
            try:
                values.append(None if value is None else read(value))
            except (ValueError, TypeError, InvalidOperation, OverflowError):
                values.append(None)
                problem = problem or f"the table's column {name!r} has a {type(value).__name__} that is no {kind}"
        made.append([*values, problem])
    schema = {**{name: to_polars(kind) for name, kind in kinds.items()}, PROBLEM: pl.String()}
    return pl.DataFrame(made, schema=schema, orient="row")


def _reader(kind: str) -> Callable[[Any], Any]:
    """Return the function that converts a value, from a column of a database or from a text."""
    match kind.partition("(")[0].strip().lower():
        case "string":
            return _text
        case "long" | "bigint" | "int" | "integer" | "short" | "smallint" | "byte" | "tinyint" as word:
            return lambda value: _integer(value, _RANGES.get(word, 63))
        case "double" | "float":
            return _real
        case "boolean":
            return _boolean
        case "timestamp":
            return lambda value: _moment(value).astimezone(UTC)
        case "timestamp_ntz":
            return _wall
        case "date":
            return _date
        case "binary":
            return _binary
        case "decimal":
            after = ddl.scale(kind)
            digits = int(kind.partition("(")[2].partition(",")[0])
            return lambda value: _decimal(value, digits, after)
    raise AssertionError(f"columns_of has refused {kind}")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError
    return value


def _integer(value: Any, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str | bytes | Decimal):
        raise TypeError
    found = int(value)
    if isinstance(value, Decimal) and found != value:
        raise ValueError
    if not -(1 << bits) <= found < 1 << bits:
        raise OverflowError
    return found


def _real(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.decode() if isinstance(value, bytes) else str(value)
    if word.lower() in _TRUE:
        return True
    if word.lower() in _FALSE:
        return False
    raise ValueError


def _moment(value: Any) -> datetime:
    """Return a time. One without an offset is in UTC, as sinks write it."""
    found = value if isinstance(value, datetime) else datetime.fromisoformat(_text(value))
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _wall(value: Any) -> datetime:
    found = value if isinstance(value, datetime) else datetime.fromisoformat(_text(value))
    if found.tzinfo is not None:
        raise ValueError
    return found


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    return date.fromisoformat(_text(value))


def _binary(value: Any) -> bytes:
    """Return bytes; those in a text, as JSON has them, are in base64."""
    return base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(memoryview(value))


def _decimal(value: Any, digits: int, after: int) -> Decimal:
    if isinstance(value, bool | float):
        raise TypeError
    found = Decimal(_text(value) if isinstance(value, str | bytes) else value)
    fitted = found.quantize(Decimal(1).scaleb(-after))
    if fitted != found or len(fitted.as_tuple().digits) > digits:
        raise ValueError
    return fitted
