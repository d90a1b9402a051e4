"""What the page of figures says of metrics: what it costs a job to keep them."""

from typing import Any, Final

from benchmarks.render_tables import source

_HOW: Final = """\
**How it is measured.** {rounds} pairs of jobs over the same files ({corpus}), in one Spark, after
others that do not count: one keeps its metrics as jobs do unless told otherwise, one has `metrics=False`; each time
the other one goes first. What counts is the CPU time of all processes, from the start of the job to its end.
"""


def watching(told: dict[str, Any]) -> str:
    """The part of the page that tells of it."""
    cost = told["cost"]
    verdict = "goal reached" if cost["reached"] else "**goal not reached**"
    between = f"{cost['low']:+.1%} to {cost['high']:+.1%}"
    row = f"CPU time that metrics add to a job | {cost['median']:+.1%} | {between} | < {cost['goal']:.0%} | {verdict}"
    table = f"| what | median | lowest to highest | goal | |\n|---|---|---|---|---|\n| {row} |\n"
    how = _HOW.format(rounds=cost["rounds"], corpus=told["corpus"])
    return "\n".join(["## Metrics: what it costs to watch\n", source(told, "watching.json"), table, how])
