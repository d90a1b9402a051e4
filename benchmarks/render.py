"""Render docs/explanation/performance.md and its pictures from the last full runs.

usage: .venv/bin/python -m benchmarks.render [--check]      --check only compares
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.render_bounded import bounded
from benchmarks.render_dashboard import dashboard
from benchmarks.render_dedupe import dedupe
from benchmarks.render_delivery import delivery
from benchmarks.render_joins import joins
from benchmarks.render_latency import latency
from benchmarks.render_nexmark import nexmark
from benchmarks.render_peers import peers
from benchmarks.render_savepoints import savepoints
from benchmarks.render_scale import scale
from benchmarks.render_shapes import shapes
from benchmarks.render_soak import soak
from benchmarks.render_sources import sources
from benchmarks.render_summary import at_a_glance
from benchmarks.render_tables import short, source, table
from benchmarks.render_watching import watching
from benchmarks.results import shown
from benchmarks.svg import FAIR, GOOD, POOR, Bar, Line, bars, lines
from benchmarks.workloads import DELAY

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results" / "windows.json"
OTHERS: Final[Mapping[str, tuple[str, Callable[[dict[str, Any]], str]]]] = {
    "of_shapes": ("shapes.json", shapes),
    "of_dedupe": ("dedupe.json", dedupe),
    "of_joins": ("joins.json", joins),
    "of_sources": ("sources.json", sources),
    "of_delivery": ("throughput-of-delivery.json", delivery),
    "of_bounded": ("bounded.json", bounded),
    "of_nexmark": ("nexmark.json", nexmark),
    "of_peers": ("peers.json", peers),
    "of_savepoints": ("savepoints.json", savepoints),
    "of_scale": ("scale.json", scale),
    "of_watching": ("watching.json", watching),
    "of_dashboard": ("dashboard.json", dashboard),
    "of_latency": ("latency.json", latency),
    "of_soak": ("soak.json", soak),
}
"""The other benchmarks in page order: result file and renderer."""
PAGE: Final = Path("docs/explanation/performance.md")
PICTURES: Final = Path("docs/pictures")

_READING: Final = """A ratio is our events per CPU-second over the peer's, in the same run, on the same machine: above
one, Strandline is faster. For costs and latencies less is better; their bounds are marked with ≤.
"""

_HOW: Final = """### How it is measured

- **One corpus.** A seeded generator writes Parquet. All contestants read the same files, two per batch, one million
  events per batch (400,000 for sessions, 100,000 for sliding windows), 50,000 events per second of event time. Events
  are out of order within 20 ms; one in twenty is up to 3 s behind, one in a hundred 10 s to a minute, one in a thousand
  beyond any allowed lateness (for sessions, none is late). Keys are uniform, or follow Zipf's law (1.1) where called
  hot.
- **The same query.** A sum and a count by key; windows of 20 s, or 60 s every second, or sessions with a gap of 2 s;
  a watermark {delay} s behind the highest event time. Output goes to a no-op sink; Strandline still writes its ledger
  and emits late elements instead of dropping them.
- **The same Spark.** Each run has its own process and JVM: `local[2]`, two shuffle partitions, 4 GB, one set of
  settings for all, with RocksDB tuned: changelog checkpoints, no row tracking, bounded memory. The state store differs
  where the table says so. Ours runs without the JVM's second compiler (C2), as Strandline starts such a job; native
  Spark is slower without it and keeps it. Results at commits before decision 0035 use the JVM's default garbage
  collector for all, later ones the serial collector for all. Only ours has Strandline's changes to Spark beyond
  settings (decision 0038), as a user's job does.
- **Checked first.** The first run of each cell is followed by one that keeps all panes of the first three batches.
  DuckDB computes the same windows as a batch job, and each key and window must match. The timed runs keep no output;
  ours must at least account for each event. A contestant that differs is reported as failed and has no number.
- **Events per CPU-second.** User and system time of the whole process tree (JVM, Python workers, ended processes),
  read from `/proc` ten times a second and cut at the ends of batches as Spark reports them. The first four batches do
  not count (two for the peer by key, whose batches are long).{warm}
- **Alternating runs.** All cells of a group run once, then again in reverse order, and so on. Ratios are taken per
  round; the table shows the median, the lowest and the highest. If the middle half of a ratio with a floor spreads by
  more than 15 % of that floor, it gets up to two more rounds.
- **One round is one moment.** A thousand keys against a million was 1.79x in the one round of the table, and 2.59x to
  2.93x in three rounds of these two cells on another machine, which miss the floor; the cause is unknown
  (decision 0039).
- **By key** is transformWithStateInPandas as in Spark's guide: a map of open windows and a timer per key. It is so
  slow that it gets only every 50th key (every 200th of a million), each with all of its events. The cost per key is
  the same and its state is smaller, which favours it.
- **Latency** is open-loop: 1,000 events fall into a folder every 100 ms, whether or not the job keeps up. A pane's
  latency runs from the moment its last event was due to the moment the driver holds the pane. Native runs in update
  mode, ours with an early pane for each change.
"""


def main(arguments: Sequence[str]) -> int:
    told = json.loads(RESULTS.read_text())
    files = {name: RESULTS.with_name(file) for name, (file, _) in OTHERS.items()}
    others = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    made = pages(told, **others)
    if "--check" in arguments:
        old = [name for name, text in made.items() if not (ROOT / name).exists() or (ROOT / name).read_text() != text]
        print("\n".join(f"{name} is not what {RESULTS.name} says: run python -m benchmarks.render" for name in old))
        return 1 if old else 0
    for name, text in made.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text)
        print(name)
    return 0


def pages(told: dict[str, Any], **others: dict[str, Any]) -> dict[Path, str]:
    """Return all rendered files by repository path."""
    return {
        PAGE: page(told, **others),
        PICTURES / "ratios.svg": _ratios(told["rows"]),
        PICTURES / "cost-by-keys.svg": _by_keys(told["cells"]),
        PICTURES / "cost-over-time.svg": _over_time(told["cells"]),
    }


def page(told: dict[str, Any], **others: dict[str, Any]) -> str:
    """Render the page: table, missed goals, cells and method of windows; then the other benchmarks."""
    parts = [
        "# Performance\n",
        at_a_glance({"windows": told, **others}),
        "## Windows\n",
        source(told, "windows.json"),
        _READING,
        table(told["rows"]),
        "![Ratios against floor and goal](../pictures/ratios.svg)\n",
        short(told["rows"], "### Where the goal of windows is not reached\n"),
        "### Also measured\n",
        table(told["reported"]),
        "![Cost per event by number of keys](../pictures/cost-by-keys.svg)\n",
        "![Cost per event as the stream goes on](../pictures/cost-over-time.svg)\n",
        "### Every cell\n",
        "State is the compacted size of RocksDB after three batches (for the in-memory store, the size it reports).\n",
        _cells(told["cells"]),
        _waits(told["latency"]),
        _how(told["cells"]),
        *(said(others[name]) for name, (_, said) in OTHERS.items() if name in others),
    ]
    return "\n".join(part for part in parts if part)


def _how(cells: Iterable[dict[str, Any]]) -> str:
    seconds = max(cell.get("warm_seconds", 0) for cell in cells)
    warm = (
        f" Before that, all but that\n  peer run the same query for {seconds:.0f} s in the same JVM." if seconds else ""
    )
    return _HOW.format(delay=DELAY, warm=warm)


def _cells(cells: Iterable[dict[str, Any]]) -> str:
    head = "| cell | events per CPU-second | events a second | peak memory | state | windows checked |"
    lines_ = [head, "|---|---|---|---|---|---|"]
    for cell in cells:
        checked = cell.get("checked", {})
        state = checked.get("state_bytes")
        if "per_cpu_second" not in cell:
            lines_.append(f"| {cell['name']} | failed | | | | |")
            continue
        lines_.append(
            f"| {cell['name']} | {cell['per_cpu_second']['median']:,.0f} | {cell['per_second']['median']:,.0f} | "
            f"{cell['peak_bytes'] / 2**30:.1f} GB | {'' if not state else _bytes(checked)} | "
            f"{checked['cells'] if checked else ''} |"
        )
    return "\n".join(lines_) + "\n"


def _bytes(checked: dict[str, Any]) -> str:
    told = f"{checked['state_bytes'] / 1e6:,.1f} MB"
    live = checked.get("live")
    return f"{told}, {checked['state_bytes'] / live:.0f} bytes a key and open window" if live else told


def _waits(waits: Sequence[dict[str, Any]]) -> str:
    good = [told for told in waits if not told.get("failure")]
    if not good:
        return ""
    lines_ = ["| early panes at 10 k events/s | p50 | p95 | p99 | panes |", "|---|---|---|---|---|"]
    lines_ += [
        f"| {told['contestant']}, round {told['round'] + 1} | {told['p50']:.0f} ms | {told['p95']:.0f} ms | "
        f"{told['p99']:.0f} ms | {told['panes']} |"
        for told in good
    ]
    return "\n".join(lines_) + "\n"


def _ratios(rows: Iterable[dict[str, Any]]) -> str:
    """Draw each row as a factor in our favour; inverted where less is better."""
    colours = {"goal": GOOD, "floor": FAIR, "below": POOR}
    drawn = []
    for row in rows:
        if row["ratio"] is None or row["unit"] != "x" or row["failure"]:
            continue
        values = row["ratio"], row["spread"]["low"], row["spread"]["high"], row["floor"], row["goal"]
        if row["lower_is_better"]:
            values = tuple(1 / value for value in values)
        value, low, high, floor, goal = values
        told = shown(row["ratio"], "x")
        drawn.append(Bar(_label(row["name"]), value, low, high, floor, goal, colours[row["reached"]], told))
    return bars("Events per CPU-second, ours over theirs", drawn)


def _label(name: str) -> str:
    return {
        "tumbling-rocksdb": "native, RocksDB",
        "tumbling-memory": "native, in memory",
        "sliding": "native, 60 overlaps",
        "all-panes": "all panes over on-time only",
        "all-panes-native": "all panes over native, RocksDB",
        "by-key-1k": "by key, 1 k keys",
        "by-key-100k": "by key, 100 k keys",
        "by-key-1m": "by key, 1 M keys",
        "pass-through": "Arrow pass-through",
        "keys-1k-1m": "cost at 1 k over 1 M keys",
    }.get(name, name)


def _by_keys(cells: Sequence[dict[str, Any]]) -> str:
    """Draw CPU microseconds per event at a thousand, a hundred thousand and a million keys."""
    courses = {
        "ours": {1_000: "ours-1k", 100_000: "ours", 1_000_000: "ours-1m"},
        "native on RocksDB": {1_000: "native-1k", 100_000: "native-rocksdb", 1_000_000: "native-1m"},
    }
    costs = {cell["name"]: 1e6 / cell["per_cpu_second"]["median"] for cell in cells if "per_cpu_second" in cell}
    drawn = [
        Line(name, [(keys, costs[cell]) for keys, cell in points.items() if cell in costs])
        for name, points in courses.items()
    ]
    shown_ = [line for line in drawn if line.points]
    title = "What an event costs, by number of keys"
    return lines(
        title, "keys", "CPU microseconds an event", shown_ or [Line("not measured", [(1, 1)])], logarithmic=True
    )


def _over_time(cells: Sequence[dict[str, Any]]) -> str:
    """Draw CPU microseconds per event in each batch of the longest run, without the warm-up."""
    found = next((cell for cell in cells if cell["name"] == "ours-long" and cell.get("batch_cpu")), None)
    title = "What an event costs as the stream goes on (ours, 100 k keys)"
    if found is None:
        return lines(title, "events so far", "not measured", [Line("not measured", [(1, 1)])])
    cpu: list[float] = found["batch_cpu"][0]
    warm_up: int = found["warm_up"]
    per_batch = found["events"] / (len(cpu) - warm_up)
    points = [(number, 1e6 * used / per_batch) for number, used in enumerate(cpu, 1) if number > warm_up]
    return lines(title, "batch", "CPU microseconds an event", [Line("ours", points)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
