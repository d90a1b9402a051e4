"""Define what a sink must offer: a ledger, and the deliveries that it supports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import polars as pl

from strandline.kernel.output import Output, Part
from strandline.plan.endpoints import Sink
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry, Recorded, Written


class OpenSink(Protocol):
    """A sink that a job has opened. `spark/delivery/deliver.py` calls it in this order:

    exactly once    commit: rows and ledger entry in one transaction; a repeated entry takes effect once
    at most once    mark: the entry alone, durable; if it is new, write
    at least once   write: the rows, durable; a repeated batch is written again

    A sink needs only the methods of the deliveries that it offers; the others may raise. A row that the sink rejects (a
    constraint, a type, a length) becomes a dead letter with the sink's message, in the same transaction or through the
    callback of `refused_to`, and counts in `Written.refused`. A fault that may pass is raised as `SinkUnavailable`, any
    other as `SinkError`, without secrets. A sink with a ledger calls `ledger.judge` inside its own transaction, and
    `crash_point("C9")` with part of the batch sent, `crash_point("C10")` right after its commit.
    """

    def claim(self, lineage: str) -> int:
        """Raise the lineage's epoch and return it. Drivers with an older epoch can no longer write."""
        ...

    def latest(self, lineage: str) -> Recorded | None:
        """Return the last batch in the ledger; None if there is none."""
        ...

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        """Write a batch and its entry in one transaction. Not `fresh` if the ledger holds the batch already."""
        ...

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        """Write the entry alone. Not `fresh` if the ledger holds the batch already."""
        ...

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        """Write the rows alone. Of the ledger only the epoch is checked."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class RejectingSink(Protocol):
    """An open sink that finds out inside its own transaction which rows it rejects."""

    def refused_to(self, keep: Callable[[pl.DataFrame, LedgerEntry], None]) -> None:
        """Register a callback for dead letters of rejected rows. It is called before the transaction ends."""
        ...


@dataclass(frozen=True, slots=True)
class Stamp:
    """Identifies what a task writes: the job, its driver's epoch, and the batch."""

    lineage: str
    epoch: int
    batch: int


class Writer(Protocol):
    """Writes rows of a task to where a sink stores them. It is sent to tasks."""

    def put(self, rows: pl.DataFrame, stamp: Stamp) -> Part | None:
        """Write rows durably, but not yet visible; None if the driver should write them instead."""
        ...


@runtime_checkable
class TaskWrittenSink(Protocol):
    """An open sink whose tasks write rows. `Output.parts` tells it what was written.

    It removes the parts of a batch that its ledger holds already. Parts of failed tasks and of lost outputs never
    become visible.
    """

    def writer(self) -> Writer | None: ...

    def swept(self, stamp: Stamp) -> None:
        """Remove what tasks of a failed attempt at a batch have written."""
        ...


class SparkSink(Sink, Protocol):
    """A sink that a job can open."""

    def open(self, output: Deliver) -> OpenSink:
        """Open the sink for an output, with its delivery and the keys that identify panes."""
        ...
