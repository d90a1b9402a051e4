"""Render the page's section on peers: table, cells with guarantees, missing peers, method."""

from collections.abc import Iterable
from typing import Any, Final

from benchmarks.peers.catalogue import ABSENT, PEERS
from benchmarks.render_tables import short, source, table

_HOW: Final = """\
**How it is measured.** A sum and a count by 100,000 keys in tumbling windows of 20 s, the watermark 5 s behind.
Contestants on Spark are measured as with windows. All others read one file of JSON lines in order of arrival, or a
topic of two partitions; nothing is late there, since lateness rules differ. Each is written as its documentation shows,
runs in its own environment and has both cores. The slow ones (Bytewax, Beam, PyFlink, Quix) get only every 20th key,
each with all of its events. A program runs over a corpus of two million events (four for ours, Flink SQL and all
topics, since a JVM compiles for half a minute) and over one twice as long. The additional CPU of the longer run, over
the whole process tree, is the cost of its events; the rest is the start-up cost, reported beside it. Each run must hold
all events in its windows, in sum and count; a first run must match DuckDB window by window. Ours reads the same lines
or topic, half a million events per batch, and is measured in the same way, with the start of JVM and Spark included in
the start-up cost.
"""
_NATIVE: Final = "exactly once into Spark's own files and tables, else at least once; late rows are dropped"
_ON_SPARK: Final = {
    "ours": PEERS["ours-lines"].promise,
    "native-rocksdb": f"{_NATIVE}; RocksDB",
    "native-memory": f"{_NATIVE}; state in memory",
    "by-key-pandas": f"{_NATIVE}; RocksDB",
    "by-key-row": f"{_NATIVE}; RocksDB",
}


def peers(told: dict[str, Any]) -> str:
    """Render the section."""
    parts = [
        "## Peers: the same windows in other systems\n",
        source(told, "peers.json"),
        table([*told["rows"], *told["reported"]]),
        short(told["rows"], "### Where the goal against peers is not reached\n"),
        _cells(told["cells"]),
        _missing(told["cells"]),
        _HOW,
    ]
    return "\n".join(part for part in parts if part)


def _cells(cells: Iterable[dict[str, Any]]) -> str:
    lines = ["| cell | events per CPU-second | start, CPU-seconds | peak memory | promises |", "|---|---|---|---|---|"]
    for cell in cells:
        peer = PEERS.get(cell["name"])
        promise = peer.promise if peer else _ON_SPARK[cell["name"]]
        if "per_cpu_second" not in cell:
            lines.append(f"| {cell['name']} | failed | | | {promise} |")
            continue
        start = "" if peer is None else f"{_start(cell):.1f}"
        lines.append(
            f"| {cell['name']} | {cell['per_cpu_second']['median']:,.0f} | {start} | "
            f"{cell['peak_bytes'] / 2**30:.1f} GB | {promise} |"
        )
    return "\n".join(lines) + "\n"


def _start(cell: dict[str, Any]) -> float:
    """Return the first round's start cost: the shorter run minus the cost of its events."""
    shorter, longer = cell["batch_cpu"][0]
    return max(0.0, 2 * float(shorter) - float(longer))


def _missing(cells: Iterable[dict[str, Any]]) -> str:
    absent = [f"{cell['name']} {why}" for cell in cells for why in cell["failures"] if ABSENT in why]
    return f"Not measured: {'; '.join(absent)}.\n" if absent else ""
