"""Columns as Spark's DDL writes them: `team string, score long, tags array<string>`."""

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
_TIMES: Final = frozenset({"timestamp", "timestamp_ntz"})
_COLUMN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*[:\s]\s*(\S.*?)\s*", re.DOTALL)


def parse(text: str) -> dict[str, str]:
    """The columns in order, each with its type: the word in small letters, names inside it as they are."""
    columns: dict[str, str] = {}
    for part in parts(text):
        said = _COLUMN.fullmatch(part)
        if said is None:
            raise InvalidStep(f"cannot read the column {part.strip()!r}", hint=HINT)
        name = said[2] or said[1].replace("``", "`")
        if name.startswith("@"):
            raise InvalidStep(f"the column {name!r} starts with @", hint="those names are Strandline's own")
        if name in columns:
            raise InvalidStep(f"two columns are called {name!r}", hint="give each a name of its own")
        columns[name] = re.sub(r"^\w+", lambda word: word[0].lower(), " ".join(said[3].split()))
    return columns


def parts(text: str) -> list[str]:
    """What stands between the commas, of which those inside brackets or a quoted name are no separators."""
    found, depth, start, quoted = [], 0, 0, False
    for place, sign in enumerate(text):
        quoted ^= sign == "`"
        depth += 0 if quoted else (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0 and not quoted:
            found.append(text[start:place])
            start = place + 1
    return [*found, text[start:]]


def is_number(kind: str | None) -> bool:
    """Whether it can be summed; True where the type is not known."""
    return kind is None or kind in _NUMBERS or kind.startswith("decimal")


def is_time(kind: str | None) -> bool:
    """Whether it is an instant; True where the type is not known."""
    return kind is None or kind in _TIMES
