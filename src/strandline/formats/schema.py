"""Convert between DDL and Arrow schemas."""

import pyarrow as pa

from strandline.errors import InvalidStep
from strandline.kernel.blocks.column_types import scalars, to_arrow
from strandline.model.ddl import HINT, hint_for, parse


def parse_ddl(text: str) -> pa.Schema:
    """Parse DDL such as `team string, score long, at timestamp`."""
    return pa.schema([pa.field(name, _type(name, kind)) for name, kind in parse(text).items()])


def _type(name: str, kind: str) -> pa.DataType:
    found = to_arrow(kind)
    if found is None:
        raise InvalidStep(f"cannot read the column {f'{name} {kind}'!r}", hint=hint_for(kind))
    return found


def to_ddl(schema: pa.Schema) -> str:
    """Format a schema as DDL that `parse_ddl` reads."""
    return ", ".join(f"{name} {kind}" for name, kind in types_of(schema).items())


def types_of(schema: pa.Schema) -> dict[str, str]:
    """Each column's type in DDL."""
    return {field.name: ddl_of(field.type) for field in schema}


def ddl_of(kind: pa.DataType) -> str:
    """Format one type in DDL."""
    for name, found in scalars().items():
        if kind == found:
            return name
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_map(kind):
        return f"map<{ddl_of(kind.key_type)}, {ddl_of(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{ddl_of(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {ddl_of(field.type)}' for field in kind)}>"
    raise InvalidStep(f"DDL has no type for {kind}", hint=HINT)
