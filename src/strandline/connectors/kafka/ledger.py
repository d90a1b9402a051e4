"""The ledger of a topic, in a topic of its own: who may write, and which batches are there, in the rows' transaction.

It is compacted, so that it stays small: a record for each driver's claim and for each batch, under a key of its own.
"""

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from strandline.connectors.kafka.clients import admin_of, ends, reader, records_from
from strandline.connectors.kafka.security import Security
from strandline.errors import SinkUnavailable, StateError
from strandline.kernel.output import Output, counts_to_facts
from strandline.ports.ledger import LedgerEntry, Recorded

VERSION: Final = 1
KEPT: Final = 1_000
"""Entries of a job that are kept, many more than Spark can go back."""

Record = dict[str, Any]


@dataclass(slots=True)
class Told:
    """What the ledger says of one job."""

    epoch: int | None = None
    batches: dict[int, Recorded] = field(default_factory=dict)

    @property
    def last(self) -> Recorded | None:
        return self.batches[max(self.batches)] if self.batches else None


class Ledger:
    """A ledger, read on from where it was read to; used from one thread at a time."""

    def __init__(self, servers: str, security: Security, topic: str, output: int) -> None:
        self._servers, self._security, self._topic, self._output = servers, security, topic, output
        self._open = ExitStack()
        self._clients: tuple[Any, Any] | None = None
        self._at: dict[str, int] = {}
        self._jobs: dict[str, Told] = {}

    def read(self, lineage: str) -> Told:
        """All that was committed until now, of this job."""
        if self._clients is None:
            consumer = self._open.enter_context(reader(self._servers, self._security))
            self._clients = admin_of(self._servers, self._security), consumer
        admin, consumer = self._clients
        try:
            until = ends(admin, [self._topic])
            starts = {self._topic: {number: self._at.get(number, 0) for number in until[self._topic]}}
            found = [(each.key(), each.value(), each.offset()) for each in records_from(consumer, starts, until)]
        except SinkUnavailable:
            self.close()
            raise
        for key, value, offset in found:
            self._fold(key, value, f"record {offset} of {self._topic}")
        self._at = until[self._topic]
        return self._jobs.setdefault(lineage, Told())

    def _fold(self, key: bytes | None, value: bytes | None, where: str) -> None:
        try:
            said = json.loads(key or b"")
            facts = None if value is None else json.loads(value)
            if facts is not None and facts["version"] > VERSION:
                raise StateError(f"{where} is written by a newer Strandline", hint="upgrade")
            lineage, output, batch = said["lineage"], said["output"], said.get("batch")
            if output != self._output:
                return
            job = self._jobs.setdefault(lineage, Told())
            if facts is None:
                job.batches.pop(batch, None)
            elif batch is None:
                job.epoch = facts["epoch"]
            else:
                told = (facts["digest"], facts["watermark"], facts["ends"], facts["output"])
                job.batches[batch] = Recorded(batch, *told)
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise StateError(f"{where} is no entry of a ledger", detail=str(problem)[:200]) from None

    def claim(self, lineage: str, epoch: int) -> Record:
        """The record by which a driver takes over."""
        return self._record({"lineage": lineage, "output": self._output}, {"epoch": epoch, "since": _utc_now()})

    def entry(self, output: Output, entry: LedgerEntry) -> list[Record]:
        """The record of a batch; now and then with those that end the oldest ones."""
        facts = {
            "epoch": entry.epoch, "digest": entry.digest, "watermark": output.progress.watermark,
            "clock": output.progress.clock, "counts": dict(counts_to_facts(output.counts)), "committed": _utc_now(),
            "starts": entry.starts, "ends": entry.ends, "output": entry.output,
        }  # fmt: skip
        old = []
        if entry.batch % 100 == 0:
            old = [batch for batch in self._jobs[entry.lineage].batches if batch <= entry.batch - KEPT]
        gone = [self._record(self._key(entry.lineage, batch), None) for batch in old]
        return [self._record(self._key(entry.lineage, entry.batch), facts), *gone]

    def _key(self, lineage: str, batch: int) -> dict[str, Any]:
        return {"lineage": lineage, "output": self._output, "batch": batch}

    def _record(self, key: dict[str, Any], facts: dict[str, Any] | None) -> Record:
        value = None if facts is None else json.dumps({"version": VERSION, **facts}).encode()
        return {"topic": self._topic, "key": json.dumps(key, sort_keys=True).encode(), "value": value}

    def close(self) -> None:
        """Its clients are gone; asked again, it makes new ones."""
        self._clients = None
        self._open.close()


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
