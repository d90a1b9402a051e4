"""Render the page's section on the cost of metrics."""

from typing import Any, Final

from benchmarks.render_tables import source

_HOW: Final = """\
The goal is reached only if it lies above the whole confidence range of the median.

**How it is measured.** Jobs over the same files ({corpus}) run one after the other in one Spark; the first does not
count. While a job runs, its metrics are switched on and off for a few batches each: with, without, without, with. Two
neighbouring stretches are a pair ({rounds} in all); their first batches do not count, since a batch's metrics are
written during the next one. The range is that of the median (95 %, bootstrap over pairs), not of single pairs, which
lie between {low:+.0%} and {high:+.0%} because the machine's speed varies that much. The one-time cost of starting
metrics is not included.
"""


def watching(told: dict[str, Any]) -> str:
    """Render the section."""
    cost, cpu = told["cost"], told["cpu"]
    verdict = "goal reached" if cost["reached"] else "**goal not reached**"
    longer = f"{cost['median']:+.1%} | {cost['least']:+.1%} to {cost['most']:+.1%} | < {cost['goal']:.0%} | {verdict}"
    more = f"{cpu['median']:+.1%} | {cpu['least']:+.1%} to {cpu['most']:+.1%} | |"
    rows = (
        "| with metrics against without | median of all pairs | 95 % range | goal | |",
        "|---|---|---|---|---|",
        f"| time of a batch | {longer} |",
        f"| CPU time of a batch | {more} |",
        "",
    )
    table = "\n".join(rows)
    how = _HOW.format(rounds=cost["rounds"], corpus=told["corpus"], low=cost["low"], high=cost["high"])
    return "\n".join(["## Metrics: cost per batch\n", source(told, "watching.json"), table, how])
