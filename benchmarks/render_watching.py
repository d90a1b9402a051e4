"""What the page of figures says of metrics: what it costs a job to keep them."""

from typing import Any, Final

from benchmarks.render_tables import source

_HOW: Final = """\
The goal is reached only if the highest pair is below it.

**How it is measured.** {rounds} pairs of jobs over the same files ({corpus}), in one Spark, after
others that do not count: one keeps its metrics as jobs do unless told otherwise, one has `metrics=False`; each time
the other one goes first. Metered is the CPU time of all processes, from the start of the job to its end. The two differ
by less than two runs of the same job do, so what is judged is what the code of metrics takes by itself, by clocks on
it: in the workers their CPU time, in the driver that of the threads that do it. What Spark does to say how the batch
went and to carry some hundred bytes more for each task, and what threads of Polars do for the driver, is in the
difference alone.
"""


def watching(told: dict[str, Any]) -> str:
    """The part of the page that tells of it."""
    own, cost = told["own"], told["cost"]
    verdict = "goal reached" if own["reached"] else "**goal not reached**"
    mine = f"{own['median']:.2%} | {own['low']:.2%} to {own['high']:.2%} | < {own['goal']:.0%} | {verdict}"
    more = f"{cost['median']:+.1%} | {cost['low']:+.1%} to {cost['high']:+.1%} | |"
    rows = (
        "| what | median | lowest to highest | goal | |",
        "|---|---|---|---|---|",
        f"| their own code, of the job's CPU time | {mine} |",
        f"| CPU time of a job with them against one without | {more} |",
        "",
    )
    table = "\n".join(rows)
    how = _HOW.format(rounds=cost["rounds"], corpus=told["corpus"])
    return "\n".join(["## Metrics: what it costs to watch\n", source(told, "watching.json"), table, how])
