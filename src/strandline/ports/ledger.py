"""The ledger: who wrote which batch from which range, and what that means for the next one that comes.

A batch id is no identity: after a power cut or a restored copy the same id can come with other rows. So an entry names
its lineage, the driver's epoch, and the range by a digest; and each range begins where the one before it ended.
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
    """A range of the sources that is durable."""

    digest: str
    """Of the whole entry of Spark's log, the positions before it, and what the sources themselves wrote down."""
    starts: str | None = None
    """The positions it begins at: those at which the batch before it ended. None for the first batch of a job."""
    ends: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Who wrote which batch, from what: written in the sink's own transaction, with the rows."""

    lineage: str
    epoch: int
    batch: int
    digest: str
    starts: str | None = None
    ends: str | None = None
    output: str = ""
    """A digest of the rows, by which two plays of one range can be told apart."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a sink's ledger says of a batch that it holds."""

    batch: int
    digest: str
    watermark: int
    ends: str | None = None
    output: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch: whether it is new to the sink, and how many rows the sink would not take."""

    fresh: bool = True
    refused: int = 0
    differs: bool = False
    """It was there already, made from the same range, with other rows: something in the pipeline is not repeatable."""
    letters: pl.DataFrame | None = None
    """The rows that it would not take, as dead letters, of a sink that has no place for them itself."""


def judge(
    entry: LedgerEntry, epoch: int | None, known: Recorded | None, last: Recorded | None, *, sink: str
) -> Written | None:
    """None if the batch is to be written, what is known of it if it is there, an error if it may be neither.

    Asked inside the sink's transaction: `epoch` is the newest that was claimed, `known` the entry with this batch's id,
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
    """Ids may have gaps; ranges may not."""
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
    """The same for equal rows in any order, as far as one version of Polars is asked.

    Numbers of rows and sums of their hashes, which need no order: to sort them took most of the time.
    """
    told = []
    for frame, parts in ((output.panes, output.parts), (output.late, ()), (output.dead, ())):
        some = [] if frame is None or not frame.width else [(frame.height, *sums_of(frame))]
        each = [*some, *((part.rows, *part.sums) for part in parts)]
        rows, plain, mixed = (sum(numbers) & _WORD for numbers in zip(*each, strict=True)) if each else (0, 0, 0)
        told.append(f"{rows}-{plain:x}-{mixed:x}" if each else "0")
    return f"{pl.__version__}+sums:{'/'.join(told)}"


def sums_of(rows: pl.DataFrame) -> tuple[int, int]:
    """What rows add to a digest, whatever stands beside them."""
    hashes = rows.hash_rows(0).to_numpy()
    mixed = (hashes ^ (hashes >> np.uint64(29))) * _ODD
    return int(hashes.sum(dtype=np.uint64)), int(mixed.sum(dtype=np.uint64))


def _differ(one: str, other: str) -> bool:
    """Digests of different versions of Polars, or of no version, say nothing of each other."""
    return one.partition(":")[0] == other.partition(":")[0] and one != other
