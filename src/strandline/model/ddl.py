"""Parse column lists in Spark's DDL: `team string, score long, tags array<string>`."""

import re
from collections.abc import Mapping
from typing import Final

from strandline.errors import InvalidStep
from strandline.model.suggestions import nearest

SCALARS: Final = (
    "string", "long", "bigint", "int", "double", "boolean", "timestamp", "float", "date", "binary",
    "integer", "byte", "tinyint", "short", "smallint", "timestamp_ntz",
)  # fmt: skip
HINT: Final = (
    f"write a name and a type, one of {', '.join(SCALARS)}, decimal(p, s), array<…>, map<string, …>, "
    "struct<name: type, …>; columns are separated by commas"
)
_NUMBERS: Final = frozenset(
    {"byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "float", "double"}
)
_INTEGERS: Final = _NUMBERS - {"float", "double"}
DIGITS: Final = 38
"""The most digits of a decimal."""
_TIMES: Final = frozenset({"timestamp", "timestamp_ntz"})
_DECIMAL: Final = re.compile(r"decimal\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)", re.IGNORECASE)
_NESTED: Final = re.compile(r"(array|map|struct)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_MOST_DIGITS: Final = 38
_WORD: Final = re.compile(r"\w+")
_MORE_OF_SPARK: Final = (
    "array", "map", "struct", "decimal", "dec", "numeric", "real", "char", "character", "varchar", "timestamp_ltz",
    "time", "interval", "variant", "void",
)  # fmt: skip
_COLUMN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*[:\s]\s*(\S.*?)\s*", re.DOTALL)


def parse(text: str) -> dict[str, str]:
    """Return the columns in order, each with its type: keywords in lower case, nested names unchanged."""
    columns: dict[str, str] = {}
    for part in parts(text):
        column = _COLUMN.fullmatch(part)
        if column is None:
            raise InvalidStep(f"cannot read the column {part.strip()!r}", hint=HINT)
        name = column[2] or column[1].replace("``", "`")
        if name.startswith("@"):
            raise InvalidStep(f"the column {name!r} starts with @", hint="such names are reserved for Strandline")
        if name in columns:
            raise InvalidStep(f"two columns are called {name!r}", hint="give each a different name")
        columns[name] = re.sub(r"^\w+", lambda word: word[0].lower(), " ".join(column[3].split()))
    return columns


def hint_for(kind: str) -> str:
    """Return the hint for a type that is none: the nearest one, and the list."""
    found = nearest(kind, SCALARS)
    return HINT if found is None else f"did you mean {found!r}? {HINT}"


def require_types(columns: Mapping[str, str]) -> None:
    """Raise for the first column whose type is not in DDL, with the nearest type."""
    for name, kind in columns.items():
        wrong = _wrong_type(kind)
        if wrong is not None:
            raise InvalidStep(
                f"there is no type {wrong!r}, which the column {name!r} has",
                hint=hint_for(wrong),
            )


def require_spark_types(columns: Mapping[str, str]) -> None:
    """Raise for the first column whose type no column of Spark has. What is inside a nested type is left to Spark."""
    for name, kind in columns.items():
        word = _WORD.match(kind)
        if word is None or word[0].lower() not in (*SCALARS, *_MORE_OF_SPARK):
            raise InvalidStep(f"there is no type {kind!r}, which the column {name!r} has", hint=hint_for(kind))


def _wrong_type(kind: str) -> str | None:
    """Return the part of a type that is none."""
    text = kind.strip()
    if text.lower() in SCALARS:
        return None
    if found := _DECIMAL.fullmatch(text):
        return None if 0 < int(found[1]) <= _MOST_DIGITS and int(found[2]) <= int(found[1]) else text
    nested = _NESTED.fullmatch(text)
    if nested is None:
        return text
    inner = [part.strip() for part in parts(nested[2])]
    match nested[1].lower():
        case "array" if len(inner) == 1:
            return _wrong_type(inner[0])
        case "map" if len(inner) == 2 and inner[0].lower() == "string":
            return _wrong_type(inner[1])
        case "struct" if all(":" in part for part in inner):
            return next((wrong for part in inner if (wrong := _wrong_type(part.partition(":")[2]))), None)
    return text


def parts(text: str) -> list[str]:
    """Split at commas, except inside brackets and quoted names."""
    found, depth, start, quoted = [], 0, 0, False
    for place, sign in enumerate(text):
        quoted ^= sign == "`"
        depth += 0 if quoted else (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0 and not quoted:
            found.append(text[start:place])
            start = place + 1
    return [*found, text[start:]]


def is_number(kind: str | None) -> bool:
    """Return whether a type can be summed; True if the type is not known."""
    return kind is None or kind in _NUMBERS or kind.startswith("decimal")


def is_integer(kind: str) -> bool:
    """Return whether a type is an integer."""
    return kind in _INTEGERS


def is_nested(kind: str) -> bool:
    """Return whether a type contains others: an array, a map or a struct."""
    return "<" in kind


def scale(kind: str) -> int:
    """Return the digits of a decimal type after the point."""
    inside = kind.partition("(")[2].rstrip(") ").split(",")
    return int(inside[1]) if len(inside) == 2 else 0


def is_time(kind: str | None) -> bool:
    """Return whether a type is a timestamp; True if the type is not known."""
    return kind is None or kind in _TIMES
