"""Render the page's section on scale: tables, cells, method, model."""

from collections.abc import Iterable
from typing import Any, Final

from benchmarks.paper import ASKED, Model, on_paper
from benchmarks.render_tables import cells, short, source, table
from benchmarks.scale import HELD

_HOW: Final = """\
**How it is measured.** One Strandline job: sum and count by 100,000 keys in windows of 20 s, two partitions on two
cores, a million events per batch; and the same with one change: ten times the events, fewer or more keys, windows of an
hour that keep all keys (of ten million keys five in the end), overlapping windows of a minute (10,000 keys, 100,000
events per batch), fewer or more partitions, one core, four million events per batch. On one core all processes are
pinned to it, the JVM's compilers and Python workers too. Costs are CPU time of the whole process tree per event; the
gain of a second core is in events per second. For comparison, single-threaded Polars groups the same files on one core,
and on each of two cores at the same time. Polars and DuckDB also group the files with few and many keys, without
streaming state. Each cell is checked. All else is as with windows.
"""

_CORES: Final = (2, 8, 32, 100)
_EVERY: Final = (1.0, 5.0, 20.0)
_NAMES: Final = {
    "cores-1": "one core",
    "events-10x": "ten times the events",
    "large-cores-1": "four times the events in a batch, one core",
}
_LEFT_OUT: Final = """\
**What the model leaves out**, which makes it an upper bound: the network between machines (here all is one machine);
less combining per task when more tasks share the events of a key (on one core one task sees the whole batch and is
faster than predicted); limits of source and sink; stragglers; state larger than memory. The driver gathers all panes,
so with many panes per second, such as an early pane per change, the driver is the limit, not the cores.
"""


def scale(told: dict[str, Any]) -> str:
    """Render the section."""
    parts = [
        "## Scale: cost per event by keys, windows, partitions and cores\n",
        source(told, "scale.json"),
        table([*told["rows"], *told["reported"]]),
        short(told["rows"], "### Where the goal of scale is not reached\n"),
        cells(told["cells"], "windows checked"),
        _held(told["cells"]),
        _HOW,
    ]
    modelled = on_paper(told)
    return "\n".join([*(part for part in parts if part), *([] if modelled is None else [_paper(*modelled)])])


def _held(cells: Iterable[dict[str, Any]]) -> str:
    """Describe the size of held state."""
    sizes = {cell["name"]: cell.get("checked", {}).get("state_bytes") for cell in cells if cell["name"] in HELD}
    told = [f"{size / 1e6:,.0f} MB with {HELD[name] / 1e6:,.0f} M keys" for name, size in sizes.items() if size]
    return f"State after three batches in windows of an hour, compacted: {', '.join(told)}.\n" if told else ""


def _paper(model: Model, foretold: dict[str, tuple[float, float]]) -> str:
    """Render the model, its accuracy, and its prediction for more cores."""
    rows = [
        f"| {_NAMES[name]} | {guess:.2f} s | {seen:.2f} s | {guess / seen - 1:+.0%} |"
        for name, (guess, seen) in foretold.items()
    ]
    lines = [
        f"| {cores} | " + " | ".join(f"{model.rate(cores, every) / 1e6:,.1f} M" for every in _EVERY) + " |"
        for cores in _CORES
    ]
    needed = [(every, model.cores_for(ASKED, every)) for every in _EVERY]
    enough = "; ".join(
        f"batches of {every:.0f} s: {'no number of cores' if cores is None else f'{cores} cores'}"
        for every, cores in needed
    )
    says = (
        "`benchmarks/paper.py` fits four parameters to the cells that differ in partitions or in events per batch:\n"
        f"{model.cost * 1e6:.2f} µs of a core per event, {model.task * 1e3:.0f} ms per partition and batch; and per "
        f"batch\n{model.alone * 1e3:.0f} ms in which only one core works, plus {model.each * 1e3:.1f} ms per "
        "partition. Predicted batch times of cells\nthat were not used for the fit:\n"
    )
    return "\n".join([
        "### Model: a hundred cores\n",
        says,
        "| | predicted | measured | |\n|---|---|---|---|",
        *rows,
        "\nSustained events per second, one partition per core, by batch length:\n",
        "| cores | " + " | ".join(f"{every:.0f} s" for every in _EVERY) + " |\n|---|---|---|---|",
        *lines,
        f"\nTen million events per second need, by this model: {enough}.\n",
        _LEFT_OUT,
    ])  # fmt: skip
