"""Run the query in Pathway: a line file as a stream, windows that emit once, no persistence, configurable threads."""

import os
import threading
from typing import Any

import pathway as pw

from benchmarks.peers.programs.told import FLUSH_KEY, Heard, read_order

PATIENCE = 280.0


class Event(pw.Schema):
    """An event."""

    key: int
    value: int
    ms: int


def main() -> None:
    order = read_order()
    heard = Heard(order)
    events = pw.io.jsonlines.read(order.events, schema=Event, mode="streaming", autocommit_duration_ms=1500)
    totals = events.windowby(
        events.ms,
        window=pw.temporal.tumbling(duration=order.length),
        instance=events.key,
        behavior=pw.temporal.common_behavior(delay=order.length + order.delay, cutoff=order.delay, keep_results=True),
    ).reduce(
        key=pw.this._pw_instance,  # noqa: SLF001 - its documentation's own name
        start=pw.this._pw_window_start,  # noqa: SLF001
        total=pw.reducers.sum(pw.this.value),
        plays=pw.reducers.count(),
    )

    def hear(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # noqa: ARG001
        if row["key"] == FLUSH_KEY:
            return
        sign = 1 if is_addition else -1
        heard.hear(row["key"], row["start"], sign * row["total"], sign * row["plays"])
        # A stream has no end: stop once all events are in emitted windows.
        if heard.plays == order.count:
            heard.tell(version=pw.__version__)
            os._exit(0)

    pw.io.subscribe(totals, on_change=hear)
    threading.Timer(PATIENCE, lambda: os._exit(3)).start()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    main()
