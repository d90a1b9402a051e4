"""A sink that keeps nothing: for measuring, and for trying a pipeline without an output."""

from dataclasses import dataclass

import polars as pl

from strandline.kernel.output import Output, Part
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry, Recorded, Written
from strandline.ports.sinks import Stamp


@dataclass(frozen=True, slots=True)
class Discard:
    """Counts what comes, and lets it go."""

    @property
    def name(self) -> str:
        return "discard()"

    @property
    def offers(self) -> frozenset[Delivery]:
        return frozenset(Delivery)

    @property
    def takes_retractions(self) -> bool:
        return True

    def open(self, output: Deliver) -> "OpenDiscard":  # noqa: ARG002 - all are alike to it
        return OpenDiscard()


class OpenDiscard:
    """Remembers the last batch while it is open, and nothing after that."""

    def __init__(self) -> None:
        self._last: Recorded | None = None

    def claim(self, lineage: str) -> int:  # noqa: ARG002 - nobody else can write here
        return 1

    def latest(self, lineage: str) -> Recorded | None:  # noqa: ARG002
        return self._last

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        return self.mark(output, entry)

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        self._last = Recorded(entry.batch, entry.digest, output.progress.watermark)
        return Written()

    def write(self, output: Output, entry: LedgerEntry) -> Written:  # noqa: ARG002
        return Written()

    def writer(self) -> "DiscardWriter":
        return DiscardWriter()

    def swept(self, stamp: Stamp) -> None:
        pass

    def close(self) -> None:
        pass


class DiscardWriter:
    """Lets elements go where they are."""

    def put(self, rows: pl.DataFrame, stamp: Stamp) -> Part:  # noqa: ARG002 - nobody is told
        return Part(rows.height)


def discard() -> Discard:
    """Nowhere: `write(discard())`."""
    return Discard()
