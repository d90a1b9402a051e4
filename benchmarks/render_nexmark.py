"""Render the page's section on Nexmark: table, cells, missing queries, method."""

from typing import Any, Final

from benchmarks.nexmark.queries import LEFT_OUT
from benchmarks.render_tables import cells, short, source, table

_HOW: Final = """\
**How it is measured.** A seeded generator writes people, auctions and bids into one log of Parquet files: 500,000
events per batch, 10,000 per second of event time, so that a window of ten seconds is full and a batch spans fifty
seconds. The log is out of order and partly late like the corpus of windows; a bid refers to what existed when it
happened. The watermark is 4 s behind. q0, q1, q2, q14, q21 and q22 emit one row per bid. q5, q7 and q11 emit once per
window and drop late bids (ours emits them as late). q12 and q15 to q19 emit per key with each batch that changes it,
with nothing late. The peer is hand-written native PySpark on RocksDB with the same settings. Where Spark lacks an
operator, it uses a substitute: a set for distinct counts (q15, q16), the maximum by time for the last value (q18), two
chained aggregations (q5). It has no answer to q19. Tasks discard rows per bid on both sides. Ours sends windows and
keys to the driver, counts each element and writes a ledger, where the peer's sink keeps nothing. DuckDB checks each
cell row by row over the first three batches before its number counts; of several equally high (q7) or equally late
(q18) bids, any one is accepted. Ours is written in Polars and names its columns, so tasks read the files and the JVM
runs without C2, as Strandline starts such a job. Spark prunes columns itself and keeps C2. All else is as with windows.
"""


def nexmark(told: dict[str, Any]) -> str:
    """Render the section."""
    left = ", ".join(f"{name} {why}" for name, why in LEFT_OUT.items())
    rows = [*told["rows"], *told["reported"]]
    parts = [
        "## Nexmark: people, auctions, bids\n",
        source(told, "nexmark.json"),
        table(rows),
        short(told["rows"], "### Where the goal of Nexmark is not reached\n"),
        cells(told["cells"], "rows checked"),
        f"Not implemented yet: {left}.\n",
        _HOW,
    ]
    return "\n".join(parts)
