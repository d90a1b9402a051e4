"""Files that tasks add to a table of Delta: they are in it once the driver's commit names them."""

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.delta.table import explained, sync_file
from strandline.formats.row_files import laid_out, types_of
from strandline.kernel.output import Part
from strandline.ports.durable_files import sync_folder
from strandline.ports.file_stamps import WORTH_A_FILE, is_shown, label
from strandline.ports.ledger import sums_of
from strandline.ports.sinks import Stamp

_SIMPLE: Final = frozenset({
    "string", "byte", "short", "int", "long", "float", "double", "boolean", "binary", "date", "timestamp",
})  # fmt: skip
"""Types that are the same in every Parquet file."""


@dataclass(frozen=True, slots=True)
class DeltaWriter:
    """Adds files of elements beside those of a table, in the tasks of a job."""

    path: str

    def put(self, rows: pl.DataFrame, stamp: Stamp) -> Part | None:
        root = Path(self.path)
        if rows.estimated_size() < WORTH_A_FILE or not is_shown(root, stamp):
            return None
        laid = storable(laid_out(rows, stamp.batch))
        if not set(types_of(laid).values()) <= _SIMPLE:
            return None
        with explained(self.path):
            return Part(rows.height, sums_of(rows), added(root, label(stamp), laid))


def added(root: Path, name: str, laid: pl.DataFrame) -> dict[str, Any]:
    """A durable file with these rows, as the table's log is to tell of it; and the types of its columns."""
    path = root / f"part-{name}-{uuid.uuid4().hex[:16]}.parquet"
    laid.write_parquet(path)
    sync_file(path)
    sync_folder(root)
    about = {"path": path.name, "size": path.stat().st_size, "modification_time": int(time.time() * 1000)}
    return {"file": {**about, "stats": json.dumps(_stats(laid))}, "columns": types_of(laid)}


def _stats(rows: pl.DataFrame) -> dict[str, Any]:
    """What readers skip files by."""
    numbers = [column for column in rows if column.dtype.is_integer() and column.null_count() < rows.height]
    return {
        "numRecords": rows.height,
        "minValues": {column.name: column.min() for column in numbers},
        "maxValues": {column.name: column.max() for column in numbers},
        "nullCount": {column.name: column.null_count() for column in rows},
    }


def storable(rows: pl.DataFrame) -> pl.DataFrame:
    """Columns of nothing but nulls are left out: a table has no type for them."""
    return rows.select(name for name, kind in rows.schema.items() if kind != pl.Null)


def actions(library: Any, parts: tuple[Mapping[str, Any], ...]) -> list[Any]:
    """Files as a commit adds them."""
    return [library.transaction.AddAction(**told["file"], partition_values={}, data_change=True) for told in parts]
