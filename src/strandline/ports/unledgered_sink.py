"""A sink at work that keeps no ledger: it can fence nobody, and what it is sent again is there again."""

from strandline.errors import SinkError
from strandline.kernel.output import Output
from strandline.ports.ledger import LedgerEntry, Recorded, Written


class Unledgered:
    """All that such a sink has besides `write`; it offers at least once, and no more."""

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
