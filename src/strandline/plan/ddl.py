"""Columns as Spark's DDL writes them: `team string, score long, tags array<string>`."""

import re
from collections.abc import Iterator

from strandline.errors import InvalidStep

NUMBERS = frozenset({"byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "float", "double"})
TIMES = frozenset({"timestamp", "timestamp_ntz"})


def parse(text: str) -> dict[str, str]:
    """The columns in order, each with its type in small letters."""
    columns: dict[str, str] = {}
    for part in _parts(text):
        said = re.fullmatch(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*[:\s]\s*(\S.*?)\s*", part, re.DOTALL)
        name = "" if said is None else said[2] or said[1].replace("``", "`")
        kind = "" if said is None else " ".join(said[3].split()).lower()
        if not name or not kind:
            raise InvalidStep(
                f"cannot read the column {part.strip()!r}",
                hint="write a name and a type, as in `team string, score long`; columns are separated by commas",
            )
        if name.startswith("@"):
            raise InvalidStep(f"the column {name!r} starts with @", hint="those names are Strandline's own")
        if name in columns:
            raise InvalidStep(f"two columns are called {name!r}", hint="give each a name of its own")
        columns[name] = kind
    return columns


def _parts(text: str) -> Iterator[str]:
    """What stands between the commas, of which those inside brackets or a quoted name are no separators."""
    depth, start, quoted = 0, 0, False
    for place, sign in enumerate(text):
        quoted ^= sign == "`"
        depth += 0 if quoted else (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0 and not quoted:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def is_number(kind: str | None) -> bool:
    """Whether it can be summed; True where the type is not known."""
    return kind is None or kind in NUMBERS or kind.startswith("decimal")


def is_time(kind: str | None) -> bool:
    """Whether it is an instant; True where the type is not known."""
    return kind is None or kind in TIMES


_ALIASES = {"long": "bigint", "byte": "tinyint", "short": "smallint", "integer": "int"}


def same(one: str, other: str) -> bool:
    """Whether two ways of writing mean one type."""
    return _ALIASES.get(one, one) == _ALIASES.get(other, other)
