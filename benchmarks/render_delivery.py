"""Render the page's section on delivery: table, cells, method."""

from collections.abc import Iterable
from typing import Any, Final

from benchmarks.render_tables import short, source, table
from benchmarks.workloads import DELAY

_HOW: Final = f"""\
**How it is measured.** Here a ratio is of rows or events per second by the clock, since a job waits for its sink.
Exactly once against at least once: the driver's code hands the same rows of five columns to two fresh tables of one
sink, batch by batch, in alternating order. The digest of the rows, which only a ledger entry needs, counts. The first
batches do not count. Then both tables are read, and each row must be there once. SQLite, PostgreSQL, a Kafka broker and
Valkey run on the same machine with durable commits (Kafka with its default flushing). Upserts: sums and counts by key
in windows of 20 s, {DELAY} s behind the highest time, updated in PostgreSQL with each batch; each batch writes about as
many rows as there are keys. The peer is Spark's own window in update mode on RocksDB with a `foreachBatch` that writes
by JDBC (`reWriteBatchedInserts`, 10,000 rows per round trip) into an unlogged staging table, and one `INSERT … ON
CONFLICT`. That is at least once; ours is exactly once. The same run is done once before in the same JVM; then each
window in the table must match DuckDB's result.
"""


def delivery(told: dict[str, Any]) -> str:
    """Render the section."""
    parts = [
        "## Delivery: exactly once, and upserts\n",
        source(told, "throughput-of-delivery.json"),
        table(told["rows"]),
        short(told["rows"], "### Where the goal of delivery is not reached\n"),
        table(told["reported"]),
        _cells(told["cells"]),
        _HOW,
    ]
    return "\n".join(parts)


def _cells(cells: Iterable[dict[str, Any]]) -> str:
    lines = ["| cell | a second | per CPU-second of the driver or job | rows or windows checked |", "|---|---|---|---|"]
    for cell in cells:
        if "per_second" not in cell:
            lines.append(f"| {cell['name']} | failed | | |")
            continue
        lines.append(
            f"| {cell['name']} | {cell['per_second']['median']:,.0f} | {cell['per_cpu_second']['median']:,.0f} | "
            f"{cell.get('checked', {}).get('cells', '')} |"
        )
    return "\n".join(lines) + "\n"
