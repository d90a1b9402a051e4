"""The parts of a folder with a log, and how a file comes into one."""

import uuid
from hashlib import sha256
from pathlib import Path
from typing import Final

import polars as pl

from strandline.connectors.files.log import File, write_new
from strandline.formats.laid_out import encoded
from strandline.spark.durable import sync_folder

PANES, LATE, DEAD = "panes", "late", "dead"
PARTS: Final = (PANES, LATE, DEAD)
_PRIVATE: Final = 0o600
"""Dead letters may hold anything."""


def add_file(root: Path, part: str, label: str, rows: pl.DataFrame, form: str) -> File:
    """A durable file with these rows, which no record names yet."""
    data = encoded(rows, form)
    path = f"{part}/{label}-{uuid.uuid4().hex[:16]}.{form}"
    write_new(root / path, data, _PRIVATE if part == DEAD else 0o666)
    sync_folder((root / path).parent)
    return File(path, part, rows.height, len(data))


def job_label(lineage: str) -> str:
    """A lineage in the name of a file."""
    return sha256(lineage.encode()).hexdigest()[:8]
