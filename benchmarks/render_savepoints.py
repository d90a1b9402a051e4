"""Render the page's section on savepoints: duration, and the delay of a running job."""

from collections.abc import Sequence
from typing import Any, Final

from benchmarks.render_tables import source

_HOW: Final = """\
**How it is measured.** A job holds one open window per key, with a sum and a count, in two partitions with the key
groups of two cores. Its savepoint is restored into five partitions and ten key groups, in a running Spark. The time
runs from the first read of the savepoint to a durable folder from which a run continues. Then the state is read back;
windows and sums must be the same. For the delay, the same job gets a batch every {interval:.0f} s, and after some of
them `strandline savepoint create` runs in another process, which starts its own Spark on the same two cores. The delay
is the longest gap between batch ends during the savepoint, up to one interval after it, less the longest gap before.
"""


def savepoints(told: dict[str, Any]) -> str:
    """Render the section."""
    restored, delay, keys = told["restore"], told["delay"], told["keys"]
    lines = [
        "| what | median | lowest to highest | goal | |",
        "|---|---|---|---|---|",
        _row(f"restore of {keys:,} keys", restored, _standing(restored)),
        _row("a running job's batch, later by a savepoint", delay, _standing(delay)),
        "",
        "| round | savepoint | restore | first run after | size | longest gap alone | while saved | the command |",
        "|---|---|---|---|---|---|---|---|",
        *_rounds(told["moved"], told["gaps"]),
    ]
    parts = ["## Savepoints: create and restore\n", source(told, "savepoints.json"), "\n".join(lines) + "\n"]
    return "\n".join([*parts, _HOW.format(interval=told["interval"])])


def _row(what: str, told: dict[str, Any], standing: str) -> str:
    between = f"{told['low']:.1f} s to {told['high']:.1f} s"
    return f"| {what} | {told['median']:.1f} s | {between} | ≤ {told['goal']:.0f} s | {standing} |"


def _standing(told: dict[str, Any]) -> str:
    return "goal reached" if told["reached"] else "**goal not reached**"


def _rounds(moved: Sequence[dict[str, Any]], gaps: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"| {number} | {each['create']:.1f} s | {each['restore']:.1f} s | {each['first_batch']:.1f} s | "
        f"{each['size'] / 1e6:.0f} MB | {max(gap['alone']):.1f} s | {max(gap['saved']):.1f} s | "
        f"{gap['savepoint']:.1f} s |"
        for number, (each, gap) in enumerate(zip(moved, gaps, strict=True), 1)
    ]
