"""Render the page's section on the soak test."""

from typing import Any, Final

from benchmarks.render_tables import source

_HOW: Final = """\
**How it is measured.** One Strandline job: 1,000 keys, windows of 10 s, an early pane per change and one on time. A
file of events falls into its folder each second, whether or not the job keeps up, and is removed after five minutes
([why](../how-to/read-files.md)). Memory is that of the whole process tree, where pages shared by forked processes count
for each; state is what the job reports; the wait is the longest within five seconds, from when an event was due to the
pane that holds it. The slope is that of a straight line through all but the first third.
"""
_HEAD: Final = "| | median | lowest to highest | per hour | during the run |"


def soak(told: dict[str, Any]) -> str:
    """Render the section."""
    run = told["soak"]
    lost = f"{run['lost']:,} of them lost" if run["lost"] else "all accounted for"
    lines = [_HEAD, "|---|---|---|---|---|"]
    for name, title, unit, size in (
        ("memory", "resident memory", " MB", 2**20),
        ("state", "state", " kB", 2**10),
        ("files", "open files and sockets", "", 1),
        ("waited", "longest wait", " ms", 1e-3),
    ):
        each = run[name]
        between = f"{each['least'] / size:,.0f} to {each['most'] / size:,.0f}{unit}"
        lines.append(
            f"| {title} | {each['middle'] / size:,.0f}{unit} | {between} | {each['per_hour'] / size:+,.1f}{unit} | "
            f"{each['rise']:+.1%} |"
        )
    said = f"{run['minutes']:g} minutes at {run['rate']:,} events a second: {run['events']:,} events, {lost}.\n"
    parts = ["## Soak test\n", source(told, "soak.json"), said, "\n".join(lines) + "\n", _holders(run), _HOW]
    return "\n".join(parts)


def _holders(run: dict[str, Any]) -> str:
    """Render memory by process name, after the first third and at the end."""
    lasting = {name: ends for name, ends in run["held"].items() if any(ends)}
    rows = [
        f"| `{name}` | {first / 2**20:,.0f} MB | {last / 2**20:,.0f} MB |" for name, (first, last) in lasting.items()
    ]
    return "\n".join(["| process name | after the first third | at the end |", "|---|---|---|", *rows]) + "\n"
