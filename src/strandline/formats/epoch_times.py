"""Convert times that are numbers since 1970: seconds, milliseconds or microseconds."""

from collections.abc import Mapping
from typing import Final

import polars as pl
import pyarrow as pa

from strandline.errors import InvalidStep
from strandline.formats.schema import ddl_of

Times = tuple[tuple[str, str], ...]
"""Columns with the units of their numbers."""

UNITS: Final[Mapping[str, int]] = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds in each unit."""
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
"""The first and last second of the years 1 to 9999."""


def times_of(given: Mapping[str, str] | None) -> Times:
    """Convert the option `times` of a format to a value that can be compared and hashed."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise InvalidStep(f"times is {given!r}", hint='name the column: times={"at": "ms"}')
    return tuple(sorted(given.items(), key=str))


def refuse_bad_times(times: Times, schema: pa.Schema) -> None:
    """Refuse unknown columns and units, and columns that are no timestamps."""
    for name, unit in times:
        if name not in schema.names:
            raise InvalidStep(f"times names the unknown column {name!r}", hint=f"choose from {', '.join(schema.names)}")
        kind = ddl_of(schema.field(name).type)
        if kind != "timestamp":
            raise InvalidStep(f"times names the column {name!r}, which is a {kind}", hint="declare it as timestamp")
        if unit not in tuple(UNITS):
            raise InvalidStep(f"unknown unit {unit!r} of the times in {name!r}", hint=f"choose {', '.join(UNITS)}")


def number_type(unit: str) -> pa.DataType:
    """Return the type of the numbers. Seconds may have a fraction."""
    return pa.float64() if unit == "s" else pa.int64()


def from_epoch(numbers: pl.Series, unit: str) -> pl.Series:
    """Convert numbers to instants. Numbers outside the years 1 to 9999 become an instant outside of them."""
    factor = UNITS[unit]
    per_second = UNITS["s"] // factor
    if numbers.dtype.is_float():
        numbers = numbers.fill_nan(float("inf"))
    # The product of a larger number would be out of the range of its type.
    near = numbers.clip((_FIRST_S - 1) * per_second, (_LAST_S + 1) * per_second) * factor
    return (near.round() if near.dtype.is_float() else near).cast(pl.Int64).cast(pl.Datetime("us", "UTC"))


def to_epoch(name: str, unit: str) -> pl.Expr:
    """Convert instants to whole numbers; a fraction of the unit is cut off."""
    return pl.col(name).dt.timestamp("us") // UNITS[unit]


def epoch_hint(name: str) -> str:
    """Tell how to declare numbers in a column of timestamps."""
    return f"; for numbers since 1970 use times={{{name!r}: 'ms'}}, or 's', or 'us'"
