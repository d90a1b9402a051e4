"""Render the deduplication part of the page of figures: the table, every cell, and how it was measured."""

from typing import Any, Final

from benchmarks.dedupe.events import REACH, SPAN
from benchmarks.render_tables import cells, short, source, table

_HOW: Final = f"""\
**How it is measured.** A seeded generator writes Parquet: 400,000 events a batch, 40,000 to a second of event time,
each with an id of 64 bits, a time and three more columns. About 14 % are duplicates: producers resent an event, with
the same event time, up to {REACH} s after it. Events are out of order within 25 ms; one in twenty is up to 3 s
behind; none is late. Each contestant emits every id once. Spark has one setting for the watermark delay and the
deduplication span, so all have {SPAN} s for both, and an id stays in state for {2 * SPAN} s: two million are live.
The peer is `dropDuplicatesWithinWatermark` on RocksDB with changelog checkpoints, and on the in-memory store. Output
is discarded. Before the run that counts, the same is run for 30 seconds in the same JVM; its first seven batches do
not count, so that as many ids expire as are added. DuckDB computes the rows to emit over the first eight batches;
each must be emitted once, and no other. The text rows have ids of 32 hexadecimal digits. All else is as with windows.
"""


def dedupe(told: dict[str, Any]) -> str:
    """Render the part of the page."""
    parts = [
        "## Deduplication\n",
        source(told, "dedupe.json"),
        table([*told["rows"], *told["reported"]]),
        short(told["rows"], "### Where the goal of deduplication is not reached\n"),
        cells(told["cells"], "rows checked"),
        _HOW,
    ]
    return "\n".join(parts)
