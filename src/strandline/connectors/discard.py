"""Discard all output, for measurements and for trying a pipeline without a sink."""

from dataclasses import dataclass

import polars as pl

from strandline.kernel.output import Output, Part
from strandline.model.arguments import checked
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry, Recorded, Written
from strandline.ports.sinks import Stamp


@dataclass(frozen=True, slots=True)
class Discard:
    """A sink that discards every row."""

    @property
    def name(self) -> str:
        return "discard()"

    @property
    def offers(self) -> frozenset[Delivery]:
        return frozenset(Delivery)

    @property
    def takes_retractions(self) -> bool:
        return True

    def open(self, output: Deliver) -> "OpenDiscard":  # noqa: ARG002 - it treats all outputs alike
        return OpenDiscard()


class OpenDiscard:
    """An open discarding sink; it remembers the last batch while it is open."""

    def __init__(self) -> None:
        self._last: Recorded | None = None

    def claim(self, lineage: str) -> int:  # noqa: ARG002 - there is no other writer
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
    """Counts elements in the tasks and discards them."""

    def put(self, rows: pl.DataFrame, stamp: Stamp) -> Part:  # noqa: ARG002 - nothing is written
        return Part(rows.height)


@checked
def discard() -> Discard:
    """Discard the output: `write(discard())`."""
    return Discard()
