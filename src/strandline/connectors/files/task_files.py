"""Write files into the parts of a folder, from the driver or from a task."""

import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import polars as pl

from strandline.connectors.files.manifest_log import File, Log, write_new
from strandline.formats.row_files import encode_file, to_public_columns, types_of
from strandline.kernel.output import Part
from strandline.ports.durable_files import sync_folder
from strandline.ports.file_stamps import WORTH_A_FILE, is_shown, label
from strandline.ports.ledger import sums_of
from strandline.ports.sinks import Stamp

PANES, LATE, DEAD = "panes", "late", "dead"
PARTS: Final = (PANES, LATE, DEAD)
_PRIVATE: Final = 0o600
"""File mode of dead letters, which may hold any data."""


def add_file(root: Path, part: str, label: str, rows: pl.DataFrame, form: str) -> File:
    """Write a durable file with these rows, which no log record names yet."""
    data = encode_file(rows, form)
    path = f"{part}/{label}-{uuid.uuid4().hex[:16]}.{form}"
    write_new(root / path, data, _PRIVATE if part == DEAD else 0o666)
    sync_folder((root / path).parent)
    return File(path, part, rows.height, len(data))


@dataclass(frozen=True, slots=True)
class FolderWriter:
    """Writes files of elements to a folder, in the tasks of a job."""

    path: str
    format: str

    def put(self, rows: pl.DataFrame, stamp: Stamp) -> Part | None:
        root = Path(self.path)
        log = Log(root)
        if rows.estimated_size() < WORTH_A_FILE or not is_shown(log.folder, stamp):
            return None
        with log.sink_errors():
            laid = to_public_columns(rows, stamp.batch)
            file = add_file(root, PANES, label(stamp), laid, self.format)
        return Part(rows.height, sums_of(rows), {"file": asdict(file), "columns": types_of(laid)})
