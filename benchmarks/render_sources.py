"""Render the page's section on sources: table, cells, method."""

from collections.abc import Iterable
from typing import Any, Final

from benchmarks.render_tables import short, source, table
from benchmarks.workloads import DELAY

_HOW: Final = f"""\
**How it is measured.** The same seeded corpus, 400,000 events per batch, goes to a real Kafka on this machine, into two
partitions, as JSON with ISO 8601 times, and as Avro behind the five bytes of a registry id. Each contestant reads the
same records in the same batches and computes sum and count by key in windows of 20 s, {DELAY} s behind the highest
time; output goes to a no-op sink. The peer is `from_json`, or `from_avro` of spark-avro 4.1.1 (none was published for
4.2.0) with the five bytes cut off and one fixed schema; then `withWatermark` and `groupBy(window)` on RocksDB. An
unreadable record is a null to the peer; ours stores it as a dead letter with its position, asks the registry for the
writer's schema, keeps a watermark per partition, and commits to a consumer group after each batch. Before the timed
run, the same runs for 30 seconds in the same JVM, and its first four batches do not count. All else, the check too, is
as with windows; the broker's CPU is in no ratio.
"""


def sources(told: dict[str, Any]) -> str:
    """Render the section."""
    parts = [
        "## Sources: from Kafka's records to windows\n",
        source(told, "sources.json"),
        table(told["rows"]),
        short(told["rows"], "### Where the goal of sources is not reached\n"),
        _cells(told["cells"]),
        _HOW,
    ]
    return "\n".join(parts)


def _cells(cells: Iterable[dict[str, Any]]) -> str:
    head = "| cell | events per CPU-second | events a second | peak memory | broker's CPU a million | windows checked |"
    lines = [head, "|---|---|---|---|---|---|"]
    for cell in cells:
        if "per_cpu_second" not in cell:
            lines.append(f"| {cell['name']} | failed | | | | |")
            continue
        broker = 1e6 * cell.get("broker_cpu_seconds", 0) / cell["events"]
        lines.append(
            f"| {cell['name']} | {cell['per_cpu_second']['median']:,.0f} | {cell['per_second']['median']:,.0f} | "
            f"{cell['peak_bytes'] / 2**30:.1f} GB | {broker:.2f} s | {cell.get('checked', {}).get('cells', '')} |"
        )
    return "\n".join(lines) + "\n"
