"""Render the part of joins on the page of figures: the table, every cell, and how it was measured."""

from typing import Any, Final

from benchmarks.joins.events import DELAY, WITHIN
from benchmarks.render_tables import cells, short, source, table

_HOW: Final = f"""\
**How it is measured.** A seeded generator writes two streams as Parquet: 100,000 events of each in a batch, 10,000 to a
second of event time, each with one of 100,000 keys, a time and two more columns. Events are out of order within 100 ms;
one in twenty is up to 3 s behind; none is late. A left event is joined with the right events of its key up to
{WITHIN} s after it: two on average. The watermark delay is {DELAY} s. The peer is Spark's stream-stream join on RocksDB
with changelog checkpoints, and on the in-memory store, with the same two watermarks. Output is discarded. Before the
run that counts, the same is run for 30 seconds in the same JVM; its first four batches do not count, so that as many
rows end as are added. An event of either stream counts as one. DuckDB joins the first eight batches; each pair must be
emitted once, each left row without a partner once if the streams go on long enough after it, and no other row.
"""


def joins(told: dict[str, Any]) -> str:
    """Render the part of the page."""
    parts = [
        "## Joins\n",
        source(told, "joins.json"),
        table([*told["rows"], *told["reported"]]),
        short(told["rows"], "### Where the goal of joins is not reached\n"),
        cells(told["cells"], "rows checked"),
        _HOW,
    ]
    return "\n".join(parts)
