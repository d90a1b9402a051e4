"""Parse column lists in Spark's DDL: `team string, score long, tags array<string>`."""

import re
from typing import Final

from strandline.errors import InvalidStep

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
