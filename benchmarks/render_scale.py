"""What the page of figures says of scale: the tables, every cell, and how it was measured."""

from typing import Any, Final

from benchmarks.render_tables import cells, short, source, table

_HOW: Final = """\
**How it is measured.** One job of ours, a sum and a count by 100,000 keys in windows of 20 s, two partitions on two
cores, a million events a batch; and the same with one thing changed: ten times the events, fewer or more keys, windows
of a minute that overlap (10,000 keys, 100,000 events a batch), fewer or more partitions, one core. On one core
everybody is kept to it, the JVM's compilers and the Python workers too. Costs are CPU time of the whole tree of
processes an event; what a second core brings is told in events a second. Every cell is judged. All else is as with
windows.
"""


def scale(told: dict[str, Any]) -> str:
    """The part of the page that tells of scale."""
    parts = [
        "## Scale: what an event costs as things grow\n",
        source(told, "scale.json"),
        table([*told["rows"], *told["reported"]]),
        short(told["rows"], "### Where the goal of scale is not reached\n"),
        cells(told["cells"], "windows checked"),
        _HOW,
    ]
    return "\n".join(parts)
