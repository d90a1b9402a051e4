"""Write files of a Delta table in tasks; they belong to it once the driver's commit names them."""

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.delta.table import sink_errors, sync_file
from strandline.formats.row_files import to_public_columns, types_of
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
    """Writes files of elements beside those of a table, in the tasks of a job."""

    path: str

    def put(self, rows: pl.DataFrame, stamp: Stamp) -> Part | None:
        root = Path(self.path)
        if rows.estimated_size() < WORTH_A_FILE or not is_shown(root, stamp):
            return None
        laid = storable(to_public_columns(rows, stamp.batch))
        if not set(types_of(laid).values()) <= _SIMPLE:
            return None
        with sink_errors(self.path):
            return Part(rows.height, sums_of(rows), write_table_file(root, label(stamp), laid))


def write_table_file(root: Path, name: str, laid: pl.DataFrame) -> dict[str, Any]:
    """Write a durable file; return its log entry and the types of its columns."""
    path = root / f"part-{name}-{uuid.uuid4().hex[:16]}.parquet"
    laid.write_parquet(path)
    sync_file(path)
    sync_folder(root)
    entry = {"path": path.name, "size": path.stat().st_size, "modification_time": int(time.time() * 1000)}
    return {"file": {**entry, "stats": json.dumps(_stats(laid))}, "columns": types_of(laid)}


def _stats(rows: pl.DataFrame) -> dict[str, Any]:
    """Column statistics by which readers skip files."""
    numbers = [column for column in rows if column.dtype.is_integer() and column.null_count() < rows.height]
    return {
        "numRecords": rows.height,
        "minValues": {column.name: column.min() for column in numbers},
        "maxValues": {column.name: column.max() for column in numbers},
        "nullCount": {column.name: column.null_count() for column in rows},
    }


def storable(rows: pl.DataFrame) -> pl.DataFrame:
    """Leave out columns that hold only nulls: Delta has no type for them."""
    return rows.select(name for name, kind in rows.schema.items() if kind != pl.Null)


def actions(library: Any, parts: tuple[Mapping[str, Any], ...]) -> list[Any]:
    """Convert file entries to the add actions of a commit."""
    return [library.transaction.AddAction(**part["file"], partition_values={}, data_change=True) for part in parts]
