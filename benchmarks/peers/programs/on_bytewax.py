"""Run the query in Bytewax: a line file, an event clock, tumbling windows, a fold; one worker, no recovery store."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
from bytewax.connectors.files import FileSource
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.peers.programs.told import Heard, Order, read_order

EPOCH = datetime.fromtimestamp(0, UTC)
NOW = datetime.now(UTC)


class Heap(StatelessSinkPartition[Any]):
    """Sink partition that counts its items."""

    def __init__(self, heard: Heard, length: int) -> None:
        self._heard, self._length = heard, length

    def write_batch(self, items: list[Any]) -> None:
        for key, (window, (total, plays)) in items:
            self._heard.hear(int(key), window * self._length, total, plays)


class HeapSink(DynamicSink[Any]):
    """Sink with one partition for the only worker."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap

    def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> Heap:
        return self._heap


def flow_of(order: Order, heard: Heard) -> Dataflow:
    """Build the query in Bytewax."""
    flow = Dataflow("totals")
    lines = op.input("lines", flow, FileSource(order.events, batch_size=1000))
    events = op.map("parse", lines, json.loads)
    keyed = op.key_on("key", events, lambda event: str(event["key"]))
    # The clock stands still, so that a slow machine makes no event late.
    clock = windowing.EventClock(
        ts_getter=lambda event: datetime.fromtimestamp(event["ms"] / 1000, UTC),
        wait_for_system_duration=timedelta(milliseconds=order.delay),
        now_getter=lambda: NOW,
    )
    totals = windowing.fold_window(
        "totals",
        keyed,
        clock,
        windowing.TumblingWindower(length=timedelta(milliseconds=order.length), align_to=EPOCH),
        builder=lambda: (0, 0),
        folder=lambda held, event: (held[0] + event["value"], held[1] + 1),
        merger=lambda one, two: (one[0] + two[0], one[1] + two[1]),
    )
    op.output("out", totals.down, HeapSink(Heap(heard, order.length)))
    return flow


if __name__ == "__main__":
    asked = read_order()
    found = Heard(asked)
    run_main(flow_of(asked, found))
    found.tell()
