"""What the page of figures says of Nexmark: the table, every cell, what is left out, and how it was measured."""

from typing import Any, Final

from benchmarks.nexmark.queries import LEFT_OUT
from benchmarks.render_tables import cells, short, source, table

_HOW: Final = """\
**How it is measured.** A seeded generator writes people, auctions and bids into one log of Parquet files:
500,000 events a batch, 10,000 to a second of event time, so that a window of ten seconds is full and a batch is
fifty seconds. It is out of order and partly late as the corpus of windows is, and what a bid refers to is what
there was when it happened. A watermark stays 4 s behind. q0, q1, q2, q14, q21 and q22 say a row for a bid; q5,
q7 and q11 speak once for a window, and drop what comes after it (ours hands it out as late); q12 and q15 to q19
speak for a key with every batch that changes it, with nothing late. The peer is native PySpark on RocksDB by
hand, of the same settings; where it has no word it does what it can: a set of what was seen for a distinct
count (q15, q16), the greatest by time for the last (q18), two aggregations in a row (q5). q19 it has no answer
to. Rows for a bid are let go by the tasks that have them, on both sides; windows and keys ours brings to the
driver, with a count of every element and a ledger, where the peer's sink keeps nothing. Each cell is checked by
DuckDB over the first three batches, row for row, before its number counts. Of several bids that are as high
(q7) or as late (q18), one must be said. Ours are written in Polars and name the columns they look at, so that
tasks read the files themselves, and their JVM does without its second compiler, as such a job starts it; Spark
finds out by itself which columns to read, and keeps its compiler. All else is as with windows.
"""


def nexmark(told: dict[str, Any]) -> str:
    """The part of the page that tells of Nexmark."""
    left = ", ".join(f"{name} {why}" for name, why in LEFT_OUT.items())
    rows = [*told["rows"], *told["reported"]]
    parts = [
        "## Nexmark: people, auctions, bids\n",
        source(told, "nexmark.json"),
        table(rows),
        short(told["rows"], "### Where the goal of Nexmark is not reached\n"),
        cells(told["cells"], "rows checked"),
        f"Not asked yet: {left}.\n",
        _HOW,
    ]
    return "\n".join(parts)
