"""Name the files that a driver and its tasks write to one folder, and check that tasks see the driver's folder."""

from hashlib import sha256
from pathlib import Path
from typing import Final

from strandline.ports.sinks import Stamp

WORTH_A_FILE: Final = 4 * 2**20
"""Bytes in memory. For less, the driver writes one file for all tasks."""


def job_label(lineage: str) -> str:
    """Return a lineage as a short hash for file names."""
    return sha256(lineage.encode()).hexdigest()[:8]


def label(stamp: Stamp) -> str:
    """Return the prefix of a batch's file names."""
    return f"{stamp.batch:012}-{job_label(stamp.lineage)}-{stamp.epoch}"


def show(folder: Path, lineage: str, epoch: int) -> None:
    """Create a marker file of this driver for its tasks, and delete the markers of earlier drivers."""
    for old in folder.glob(f".{job_label(lineage)}-*.here"):
        old.unlink(missing_ok=True)
    _marker(folder, lineage, epoch).touch()


def is_shown(folder: Path, stamp: Stamp) -> bool:
    """Whether a task sees its driver's folder, and not a folder of that name on another machine."""
    return _marker(folder, stamp.lineage, stamp.epoch).exists()


def _marker(folder: Path, lineage: str, epoch: int) -> Path:
    return folder / f".{job_label(lineage)}-{epoch}.here"
