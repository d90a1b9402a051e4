"""Column types as Spark's DDL writes them, and what they are in Arrow."""

from typing import Final

import pyarrow as pa

from strandline.errors import InvalidStep

TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def parse_ddl(text: str) -> pa.Schema:
    """The schema in `team string, score long, at timestamp`."""
    fields: list[pa.Field] = []
    for part in text.split(","):
        words = part.split()
        if len(words) != 2 or words[1].lower() not in TYPES:
            raise InvalidStep(
                f"cannot read the column {part.strip()!r}",
                hint=f"write a name and a type, one of {', '.join(TYPES)}; columns are separated by commas",
            )
        if words[0].startswith("@"):
            raise InvalidStep(f"the column {words[0]!r} starts with @", hint="those names are Strandline's own")
        if any(field.name == words[0] for field in fields):
            raise InvalidStep(f"two columns are called {words[0]!r}", hint="give each a name of its own")
        fields.append(pa.field(words[0], TYPES[words[1].lower()]))
    return pa.schema(fields)
