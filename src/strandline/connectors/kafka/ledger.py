"""Keep a sink's ledger in a compacted topic, written in the same transaction as the rows.

The ledger holds which driver may write, and which batches are committed. Compaction keeps it small: there is one record
per driver's claim and one per batch, each under its own key.
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
"""Ledger entries that are kept of a job, many more than Spark can go back."""

Record = dict[str, Any]


@dataclass(slots=True)
class JobEntries:
    """The ledger's entries of one job."""

    epoch: int | None = None
    batches: dict[int, Recorded] = field(default_factory=dict)

    @property
    def last(self) -> Recorded | None:
        return self.batches[max(self.batches)] if self.batches else None


class Ledger:
    """Reader of a ledger that continues from its last offset; used from one thread at a time."""

    def __init__(self, servers: str, security: Security, topic: str, output: int) -> None:
        self._servers, self._security, self._topic, self._output = servers, security, topic, output
        self._open = ExitStack()
        self._clients: tuple[Any, Any] | None = None
        self._at: dict[str, int] = {}
        self._jobs: dict[str, JobEntries] = {}

    def read(self, lineage: str) -> JobEntries:
        """Read everything that is committed so far, and return this job's entries."""
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
            self._apply(key, value, f"record {offset} of {self._topic}")
        self._at = until[self._topic]
        return self._jobs.setdefault(lineage, JobEntries())

    def _apply(self, key: bytes | None, value: bytes | None, where: str) -> None:
        try:
            key_facts = json.loads(key or b"")
            facts = None if value is None else json.loads(value)
            if facts is not None and facts["version"] > VERSION:
                raise StateError(f"{where} is written by a newer Strandline", hint="upgrade")
            lineage, output, batch = key_facts["lineage"], key_facts["output"], key_facts.get("batch")
            if output != self._output:
                return
            job = self._jobs.setdefault(lineage, JobEntries())
            if facts is None:
                job.batches.pop(batch, None)
            elif batch is None:
                job.epoch = facts["epoch"]
            else:
                recorded = (facts["digest"], facts["watermark"], facts["ends"], facts["output"])
                job.batches[batch] = Recorded(batch, *recorded)
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise StateError(f"{where} is not a ledger entry", detail=str(problem)[:200]) from None

    def claim(self, lineage: str, epoch: int) -> Record:
        """The record by which a driver claims the sink."""
        return self._record({"lineage": lineage, "output": self._output}, {"epoch": epoch, "since": _utc_now()})

    def entry(self, output: Output, entry: LedgerEntry) -> list[Record]:
        """The records that commit a batch; every 100th batch also deletes the oldest ones."""
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
        """Close the clients; the next read makes new ones."""
        self._clients = None
        self._open.close()


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
