"""Provide the methods of a sink without a ledger: no fencing, and a repeated batch is written again."""

from strandline.errors import SinkError
from strandline.kernel.output import Output
from strandline.ports.ledger import LedgerEntry, Recorded, Written


class Unledgered:
    """Base class of open sinks without a ledger. They define `write`, and offer at-least-once delivery only."""

    name: str

    def claim(self, lineage: str) -> int:  # noqa: ARG002
        return 1

    def latest(self, lineage: str) -> Recorded | None:  # noqa: ARG002
        return None

    def commit(self, output: Output, entry: LedgerEntry) -> Written:  # noqa: ARG002
        raise self._without_ledger()

    def mark(self, output: Output, entry: LedgerEntry) -> Written:  # noqa: ARG002
        raise self._without_ledger()

    def close(self) -> None:
        pass

    def _without_ledger(self) -> SinkError:
        return SinkError(f"{self.name} keeps no ledger", hint='write with delivery="at_least_once"')
