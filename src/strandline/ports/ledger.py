"""Decide from a sink's ledger whether a batch may be written: new, repeated, fenced or out of order.

A batch id is not enough. After a power cut or a restored copy, the same id can come with other rows. So a ledger entry
has the job's lineage, the driver's epoch and a digest of the range of offsets. Each range starts where the last ended.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from strandline.errors import Fenced, StateError
from strandline.kernel.output import Output

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_WORD: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Sealed:
    """A durable range of offsets of all sources."""

    digest: str
    """Covers the entry in Spark's offset log, the offsets before it, and the logs that sources keep themselves."""
    starts: str | None = None
    """The offsets at which the batch before it ended. None for the first batch of a job."""
    ends: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Identifies a batch in a sink's ledger. Written with the rows, in the sink's transaction."""

    lineage: str
    epoch: int
    batch: int
    digest: str
    starts: str | None = None
    ends: str | None = None
    output: str = ""
    """A digest of the rows, to detect that a repeated batch has other rows."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An entry read from a sink's ledger."""

    batch: int
    digest: str
    watermark: int
    ends: str | None = None
    output: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of writing a batch: whether it was new, and how many rows the sink rejected."""

    fresh: bool = True
    refused: int = 0
    differs: bool = False
    """The ledger holds this range with other rows: something in the pipeline is not deterministic."""
    letters: pl.DataFrame | None = None
    """Rejected rows as dead letters, from a sink that cannot store them itself."""


def judge(
    entry: LedgerEntry, epoch: int | None, known: Recorded | None, last: Recorded | None, *, sink: str
) -> Written | None:
    """Return None if the batch must be written, its result if it is written already, or raise if it may not be written.

    Called inside the sink's transaction. `epoch` is the newest claimed epoch, `known` the entry with this batch's id,
    `last` the newest entry of the lineage.
    """
    if epoch != entry.epoch:
        raise Fenced(
            "another driver has taken over this job",
            detail=f"its epoch is {epoch}, ours {entry.epoch}",
            hint="stop one of the two",
        )
    if known is not None:
        if known.digest == entry.digest:
            return Written(fresh=False, differs=_differ(known.output, entry.output))
        raise StateError(
            f"batch {entry.batch} is already in {sink}, made from another range of the source",
            detail=f"digest {known.digest[:12]}… against {entry.digest[:12]}…",
            hint="the checkpoint is older than the sink: restore both from the same moment, or write to a new table",
        )
    _check_chain(entry, last, sink)
    return None


def _check_chain(entry: LedgerEntry, last: Recorded | None, sink: str) -> None:
    """Raise if there is a gap between ranges. Batch ids may have gaps."""
    if last is not None and last.batch > entry.batch:
        raise StateError(
            f"batch {entry.batch} is new to {sink}, which is at batch {last.batch}",
            hint="the checkpoint is older than the sink: restore both from the same moment, or write to a new table",
        )
    ended = None if last is None else last.ends
    if entry.starts is not None and entry.starts != ended and (last is None or ended is not None):
        held = "nothing of this job" if last is None else f"all up to batch {last.batch}"
        raise StateError(
            f"between {sink} and batch {entry.batch} there is a gap",
            detail=f"the sink holds {held}, and the batch begins further on",
            hint="the sink is older than the checkpoint: restore both from the same moment, or start with a new folder",
        )


def output_digest(output: Output) -> str:
    """Return a digest that is the same for equal rows in any order, with one version of Polars.

    It has row counts and sums of row hashes. Sorting the rows instead took most of the time.
    """
    digests = []
    for frame, parts in ((output.panes, output.parts), (output.late, ()), (output.dead, ())):
        own = [] if frame is None or not frame.width else [(frame.height, *sums_of(frame))]
        each = [*own, *((part.rows, *part.sums) for part in parts)]
        rows, plain, mixed = (sum(numbers) & _WORD for numbers in zip(*each, strict=True)) if each else (0, 0, 0)
        digests.append(f"{rows}-{plain:x}-{mixed:x}" if each else "0")
    return f"{pl.__version__}+sums:{'/'.join(digests)}"


def sums_of(rows: pl.DataFrame) -> tuple[int, int]:
    """Return the two sums that these rows add to a digest."""
    hashes = rows.hash_rows(0).to_numpy()
    mixed = (hashes ^ (hashes >> np.uint64(29))) * _ODD
    return int(hashes.sum(dtype=np.uint64)), int(mixed.sum(dtype=np.uint64))


def _differ(one: str, other: str) -> bool:
    """Whether two digests of one version of Polars differ. Other digests cannot be compared."""
    return one.partition(":")[0] == other.partition(":")[0] and one != other
