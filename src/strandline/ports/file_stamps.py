"""How the work of a driver and its tasks is known by the names of files, in folders that they write to together."""

from hashlib import sha256
from pathlib import Path
from typing import Final

from strandline.ports.sinks import Stamp

WORTH_A_FILE: Final = 4 * 2**20
"""Bytes in memory; of less the driver makes one file for all tasks."""


def job_label(lineage: str) -> str:
    """A lineage in the name of a file."""
    return sha256(lineage.encode()).hexdigest()[:8]


def label(stamp: Stamp) -> str:
    """What the names of a batch's files begin with."""
    return f"{stamp.batch:012}-{job_label(stamp.lineage)}-{stamp.epoch}"


def show(folder: Path, lineage: str, epoch: int) -> None:
    """A driver leaves a sign here for its tasks; those of the drivers before it lose theirs."""
    for old in folder.glob(f".{job_label(lineage)}-*.here"):
        old.unlink(missing_ok=True)
    _sign(folder, lineage, epoch).touch()


def is_shown(folder: Path, stamp: Stamp) -> bool:
    """Whether a task sees the folder of its driver, and not another of that name elsewhere."""
    return _sign(folder, stamp.lineage, stamp.epoch).exists()


def _sign(folder: Path, lineage: str, epoch: int) -> Path:
    return folder / f".{job_label(lineage)}-{epoch}.here"
