"""What the page of figures says of sources: the table, every cell, and how it was measured."""

from collections.abc import Iterable
from typing import Any, Final

from benchmarks.render_tables import short, source, table
from benchmarks.workloads import DELAY

_HOW: Final = f"""\
**How it is measured.** The same seeded corpus, 400,000 events a batch, goes to a real Kafka on this machine, into
two partitions, as JSON with a time in ISO 8601, and as Avro behind the five bytes of a registry's id. Each
contestant reads the same records in the same batches, and sums and counts them by key in windows of 20 s, {DELAY} s
behind the highest time; output goes to a sink that keeps nothing. The peer is `from_json`, or `from_avro` of
spark-avro 4.1.1 (none was published for 4.2.0) with the five bytes cut off and one schema taken for all; then
`withWatermark` and `groupBy(window)` on RocksDB. A record that cannot be read is a null to the peer; ours keeps it
as a dead letter with its place, asks the registry for the writer's schema, keeps a watermark for each partition,
and commits to a consumer group after every batch. Before the run that counts, the same is done for 30 seconds in
the same JVM, and its first four batches do not count either. All else is as with windows, the judge too; what the
broker used is in no ratio.
"""


def sources(told: dict[str, Any]) -> str:
    """The part of the page that tells of sources."""
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
