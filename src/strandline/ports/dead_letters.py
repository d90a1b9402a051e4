"""Define what a dead-letter queue must offer."""

from typing import Protocol, runtime_checkable

import polars as pl

from strandline.plan.endpoints import DeadLetters
from strandline.ports.ledger import LedgerEntry


class OpenDeadLetterQueue(Protocol):
    """A dead-letter queue that a job has opened."""

    def put(self, letters: pl.DataFrame, entry: LedgerEntry) -> None:
        """Store the dead letters of a batch durably before it returns. A repeated batch takes effect once."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class DeadLetterQueue(DeadLetters, Protocol):
    """A destination for dead letters other than the sink of the panes."""

    def open_letters(self, lineage: str) -> OpenDeadLetterQueue:
        """Open the queue for one output of a job. `lineage` tells its dead letters from those of other outputs."""
        ...
