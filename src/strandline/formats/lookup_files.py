"""Find the rows of keys in Arrow datasets, whose files are skipped by their statistics."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from strandline.errors import LookupFailed
from strandline.kernel.blocks.column_types import to_polars
from strandline.model import ddl
from strandline.model.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    import pyarrow.dataset as ds


def refuse_other_schema(what: str, schema: Any, wanted: Mapping[str, str]) -> None:
    """Raise for the first column that a dataset does not have, or has with a type that does not fit."""
    found = {name: str(schema.field(name).type) for name in schema.names}
    for name, kind in wanted.items():
        if name not in found:
            hint = did_you_mean(name, [*found], "correct the columns of the lookup")
            raise LookupFailed(f"{what} has no column {name!r}", detail=f"it has {listed(found)}", hint=hint)
        if not _fits(pl.Schema(schema.empty_table().schema)[name], kind):
            raise LookupFailed(
                f"the column {name!r} of {what} is {found[name]}, and the lookup reads it as {kind}",
                hint="correct the columns of the lookup",
            )


def found_rows(
    dataset: "ds.Dataset", keys: pl.DataFrame, names: Sequence[str], kinds: Mapping[str, str]
) -> pl.DataFrame:
    """Return the rows of these keys, with the columns in `names`."""
    import pyarrow.compute as pc  # noqa: PLC0415

    wanted = None
    for name in keys.columns:
        part = pc.field(name).isin(keys[name].unique().to_arrow())
        wanted = part if wanted is None else wanted & part
    table = dataset.to_table(columns=list(names), filter=wanted)
    rows = pl.DataFrame(table).cast(pl.Schema({name: to_polars(kinds[name]) for name in names}))
    return rows.join(keys, on=keys.columns, how="semi")


def _fits(found: pl.DataType, kind: str) -> bool:
    wanted = to_polars(kind)
    if found == wanted:
        return True
    if ddl.is_integer(kind) and found.is_integer():
        return wanted.is_(pl.Int64) or (found in (pl.Int8, pl.Int16) and wanted.is_(pl.Int32))
    if isinstance(found, pl.Datetime) and isinstance(wanted, pl.Datetime):
        return (found.time_zone is None) == (wanted.time_zone is None)
    return isinstance(found, pl.Categorical) and kind == "string"
