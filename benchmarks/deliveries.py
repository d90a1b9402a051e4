"""Measure a sink under two delivery guarantees: the same batches to both, alternately, each timed and checked."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl

from benchmarks.runs import Run
from benchmarks.stores import Found, Store
from strandline.kernel.output import Output
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry, output_digest
from strandline.ports.sinks import OpenSink
from strandline.spark.delivery.deliver import Retry, deliver

SHORT: Final = {Delivery.EXACTLY_ONCE: "exactly", Delivery.AT_LEAST_ONCE: "at-least"}
_START_US: Final = 1_700_000_000_000_000


@dataclass(frozen=True, slots=True)
class Pair:
    """A sink with the number and size of its batches."""

    sink: str
    rows: int
    batches: int
    warm_up: int

    @property
    def name(self) -> str:
        return f"{self.sink}-{self.rows}"

    def cell(self, delivery: Delivery) -> str:
        return f"{self.name}-{SHORT[delivery]}"

    @property
    def cells(self) -> tuple[str, str]:
        return self.cell(Delivery.EXACTLY_ONCE), self.cell(Delivery.AT_LEAST_ONCE)


@dataclass(slots=True)
class _Side:
    """One of the two sides: its open sink, and the time used per batch."""

    delivery: Delivery
    table: str
    sink: OpenSink
    epoch: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def take(self, rows: pl.DataFrame, number: int) -> None:
        """Deliver a batch as the driver does, with the row digest where the ledger needs it."""
        output = Output(rows)
        wall, cpu = time.perf_counter(), time.process_time()
        said = output_digest(output) if self.delivery is Delivery.EXACTLY_ONCE else ""
        starts, ends = (None if number == 0 else f"at {number}"), f"at {number + 1}"
        entry = LedgerEntry("bench", self.epoch, number, f"range {number}", starts, ends, said)
        deliver(self.sink, self.delivery, output, entry, Retry())
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)


def batch_of(pair: Pair, number: int) -> pl.DataFrame:
    """Generate the rows of a batch from its number; each row has a unique id."""
    ids = pl.int_range(number * pair.rows, (number + 1) * pair.rows, eager=True)
    return pl.DataFrame({
        "id": ids,
        "team": ("team " + (ids % 97).cast(pl.String)),
        "value": ids * 7_919 % 1_000,
        "share": ids.cast(pl.Float64) / 7,
        "at": (ids * 20 + _START_US).cast(pl.Datetime("us", "UTC")),
    })  # fmt: skip


def expected(pair: Pair) -> Found:
    """Compute the expected table contents independently."""
    count = pair.rows * (pair.warm_up + pair.batches)
    return Found(count, count, sum(number * 7_919 % 1_000 for number in range(count)))


def measure(pair: Pair, store: Store, round_: int) -> list[Run]:
    """Measure both sides batch by batch, in alternating order."""
    sides = [_opened(pair, store, delivery, round_) for delivery in SHORT]
    try:
        for number in range(pair.warm_up + pair.batches):
            rows = batch_of(pair, number)
            for side in sides if (number + round_) % 2 == 0 else sides[::-1]:
                side.take(rows, number)
    finally:
        for side in sides:
            side.sink.close()
    return [_judged(_run(pair, side, round_), store.found(side.table), expected(pair)) for side in sides]


def _opened(pair: Pair, store: Store, delivery: Delivery, round_: int) -> _Side:
    table = store.new_table(f"{pair.rows}_{SHORT[delivery].replace('-', '_')}_{round_}")
    asked = store.sink(table)
    sink = asked.open(Deliver(0, asked, delivery, None))
    return _Side(delivery, table, sink, Retry().until_done(lambda: sink.claim("bench")))


def _run(pair: Pair, side: _Side, round_: int) -> Run:
    return Run(
        pair.cell(side.delivery),
        round_,
        events=pair.rows * pair.batches,
        cpu_seconds=sum(side.cpu[pair.warm_up :]),
        wall_seconds=sum(side.wall[pair.warm_up :]),
        batch_seconds=side.wall,
        batch_cpu=side.cpu,
        counted=pair.batches,
    )


def _judged(run: Run, found: Found, wanted: Found) -> Run:
    """Check a side; lost or repeated rows mean no number."""
    failure = "" if found == wanted else f"{found} was found, not {wanted}"
    return replace(run, failure=failure, checked={"cells": found.rows})


def speeds(runs: Sequence[Run]) -> str:
    """Format both sides of a round as one line."""
    told = [run.failure or f"{run.per_second / 1000:,.1f} k rows a second" for run in runs]
    return ", ".join(f"{run.cell} {said}" for run, said in zip(runs, told, strict=True))
