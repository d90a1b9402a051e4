"""What the page of figures says of metrics: what it costs a job to keep them."""

from typing import Any, Final

from benchmarks.render_tables import source

_HOW: Final = """\
The goal is reached only if it lies above all that the middle may be.

**How it is measured.** Jobs over the same files ({corpus}), one after the other in one Spark, the first of which does
not count. While a job runs, its metrics are switched on and off, a few batches each way: with, without, without, with.
Two neighbouring stretches are a pair, of which there are {rounds}; their first batches do not count, since what is told
of a batch is told during the next one. The range is that of the middle (95 %, by drawing pairs again and again), not of
single pairs, which lie between {low:+.0%} and {high:+.0%}: the machine is not steadier than that from one second to the
next. What it costs to begin to keep metrics, once for each job, is not in it.
"""


def watching(told: dict[str, Any]) -> str:
    """The part of the page that tells of it."""
    cost, cpu = told["cost"], told["cpu"]
    verdict = "goal reached" if cost["reached"] else "**goal not reached**"
    longer = f"{cost['median']:+.1%} | {cost['least']:+.1%} to {cost['most']:+.1%} | < {cost['goal']:.0%} | {verdict}"
    more = f"{cpu['median']:+.1%} | {cpu['least']:+.1%} to {cpu['most']:+.1%} | |"
    rows = (
        "| with metrics against without | middle of all pairs | it may be | goal | |",
        "|---|---|---|---|---|",
        f"| time of a batch | {longer} |",
        f"| CPU time of a batch | {more} |",
        "",
    )
    table = "\n".join(rows)
    how = _HOW.format(rounds=cost["rounds"], corpus=told["corpus"], low=cost["low"], high=cost["high"])
    return "\n".join(["## Metrics: what it costs to watch\n", source(told, "watching.json"), table, how])
