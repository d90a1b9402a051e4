"""What the page of figures says of scale: the tables, every cell, and how it was measured."""

from collections.abc import Iterable
from typing import Any, Final

from benchmarks.paper import ASKED, Model, on_paper
from benchmarks.render_tables import cells, short, source, table
from benchmarks.scale import HELD

_HOW: Final = """\
**How it is measured.** One job of ours, a sum and a count by 100,000 keys in windows of 20 s, two partitions on two
cores, a million events a batch; and the same with one thing changed: ten times the events, fewer or more keys, windows
of an hour, in which every key is held that ever came (of ten million keys five, in the end), windows of a minute that
overlap (10,000 keys, 100,000 events a batch), fewer or more partitions, one core, four million events a batch. On one
core everybody is kept to it, the JVM's compilers and the Python workers too. Costs are CPU time of the whole tree of
processes an event; what a second core brings is told in events a second. It is compared with what it brings to plain
programs: Polars, with one thread, groups the same files on one core by itself, and on each of two cores at the same
time. What more keys cost is told of Polars and DuckDB, too, which group the same files at once and keep nothing.
Every cell is judged. All else is as with windows.
"""

_CORES: Final = (2, 8, 32, 100)
_EVERY: Final = (1.0, 5.0, 20.0)
_NAMES: Final = {
    "cores-1": "one core",
    "events-10x": "ten times the events",
    "large-cores-1": "four times the events in a batch, one core",
}
_LEFT_OUT: Final = """\
**What it leaves out**, so that it is an upper bound: the network, over which combined elements and results go between
machines (here all is one machine); that each of more tasks has fewer events of a key to combine, so that more goes on
to the windows (on one core one task sees all of a batch, and is faster than foretold); what the source can give and the
sink can take; a slow machine among many, for which all others wait; state that does not fit into memory. The driver
gathers every pane, so where windows tell many panes a second, as with an early one for each change, it is the driver
that limits, not the cores.
"""


def scale(told: dict[str, Any]) -> str:
    """The part of the page that tells of scale."""
    parts = [
        "## Scale: what an event costs as things grow\n",
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
    """How large the state is that is held."""
    sizes = {cell["name"]: cell.get("checked", {}).get("state_bytes") for cell in cells if cell["name"] in HELD}
    told = [f"{size / 1e6:,.0f} MB with {HELD[name] / 1e6:,.0f} M keys" for name, size in sizes.items() if size]
    return f"State after three batches in windows of an hour, compacted: {', '.join(told)}.\n" if told else ""


def _paper(model: Model, foretold: dict[str, tuple[float, float]]) -> str:
    """The model, how well it foretells, and what it says of more cores than there are here."""
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
        "`benchmarks/paper.py` fits four numbers to the cells that differ in partitions or in the events of a batch:\n"
        f"{model.cost * 1e6:.2f} µs of a core for an event, {model.task * 1e3:.0f} ms for a partition in a batch; and "
        f"of a batch\n{model.alone * 1e3:.0f} ms in which one core works alone, and {model.each * 1e3:.1f} ms more for "
        "every partition. How long a batch takes, in cells\nthat it was not fitted to:\n"
    )
    return "\n".join([
        "### On paper: a hundred cores\n",
        says,
        "| | foretold | measured | |\n|---|---|---|---|",
        *rows,
        "\nEvents a second that cores keep up with, a partition on each, in batches of so many seconds:\n",
        "| cores | " + " | ".join(f"{every:.0f} s" for every in _EVERY) + " |\n|---|---|---|---|",
        *lines,
        f"\nTen million events a second take, by this: {enough}.\n",
        _LEFT_OUT,
    ])  # fmt: skip
