"""What the page of figures says of savepoints: how long they take, and what a running job notices of one."""

from collections.abc import Sequence
from typing import Any, Final

from benchmarks.render_tables import source

_HOW: Final = """\
**How it is measured.** A job holds one open window for each key, with a sum and a count, in two partitions and as many
key groups as two cores get. A savepoint of it is restored into five partitions and ten key groups, in a Spark that is
up; that takes from the first look at the savepoint to a folder that a run goes on from, all of it durable. The state is
then read back, and must be the same windows with the same sum. For the delay, the same job gets a batch every
{interval:.0f} s, and after some of them `strandline savepoint create` saves it from outside, which starts a Spark of
its own on the same two cores. The delay is how much longer the longest gap between the ends of two batches is while it
saves, up to one interval after, than the longest gap before.
"""


def savepoints(told: dict[str, Any]) -> str:
    """The part of the page that tells of savepoints."""
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
    parts = ["## Savepoints: a job that moves\n", source(told, "savepoints.json"), "\n".join(lines) + "\n"]
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
