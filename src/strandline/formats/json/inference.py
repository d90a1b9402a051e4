"""Infer columns from a sample of JSON records, for a user to read, correct and pin."""

import json
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Final

from strandline.errors import InvalidSchema
from strandline.formats.schema import parse_ddl
from strandline.model.arguments import checked

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_MOST: Final = 10_000
_LONG: Final = 2**63
_ORDER: Final = ("null", "boolean", "long", "double", "date", "timestamp", "string")


@checked
def infer_json(sample: str | Path | bytes | Iterable[bytes]) -> str:
    """Infer DDL from a sample: the path of a JSON lines file, JSON lines as bytes, or records. Pin the result."""
    kinds: dict[str, Any] = {}
    for count, record in enumerate(islice(_records(sample), _MOST)):
        try:
            found = json.loads(record)
        except (ValueError, RecursionError) as problem:
            raise InvalidSchema(f"record {count + 1} of the sample is not JSON", detail=str(problem)) from None
        if not isinstance(found, dict):
            raise InvalidSchema(f"record {count + 1} of the sample is not a JSON object")
        for name, value in found.items():
            kinds[name] = _common_type(kinds.get(name, "null"), _kind(value))
    if not kinds:
        raise InvalidSchema("the sample has no field", hint="use records that are JSON objects")
    ddl = ", ".join(f"{name} {_to_ddl(kind)}" for name, kind in kinds.items())
    parse_ddl(ddl)
    return ddl


def _records(sample: str | Path | bytes | Iterable[bytes]) -> Iterable[bytes]:
    if isinstance(sample, str | Path):
        try:
            sample = Path(sample).read_bytes()
        except (OSError, ValueError) as problem:
            raise InvalidSchema(
                f"the sample {str(sample)!r} cannot be read",
                detail=getattr(problem, "strerror", None) or str(problem),
                hint="give the path of a file with a JSON object on each line, or the lines as bytes",
            ) from None
    return [line for line in sample.split(b"\n") if line.strip()] if isinstance(sample, bytes) else sample


def _kind(value: Any) -> Any:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "long" if -_LONG <= value < _LONG else "double"
        case float():
            return "double"
        case str():
            return "timestamp" if _TIME.fullmatch(value) else "date" if _DATE.fullmatch(value) else "string"
        case list():
            inner: Any = "null"
            for each in value:
                inner = _common_type(inner, _kind(each))
            return [inner]
    return {name: _kind(each) for name, each in value.items()}


def _common_type(one: Any, other: Any) -> Any:
    """The narrowest type for values of both types: a string can hold a time, and a double a long."""
    if one in ("null", other):
        return other
    if other == "null":
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _common_type(one.get(name, "null"), other.get(name, "null")) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return [_common_type(one[0], other[0])]
    for group in ({"long", "double"}, {"date", "timestamp", "string"}):
        if not isinstance(one, dict | list) and not isinstance(other, dict | list) and {one, other} <= group:
            return max(one, other, key=_ORDER.index)
    raise InvalidSchema(
        "a field of the sample changes its type",
        detail=f"{_to_ddl(one)} and {_to_ddl(other)}",
        hint="write the DDL by hand; records of the other type become dead letters",
    )


def _to_ddl(kind: Any) -> str:
    if isinstance(kind, dict):
        return f"struct<{', '.join(f'{name}: {_to_ddl(each)}' for name, each in kind.items())}>"
    if isinstance(kind, list):
        return f"array<{_to_ddl(kind[0])}>"
    return "string" if kind == "null" else str(kind)
