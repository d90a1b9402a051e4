"""Render the page's section on latency: each setting, goals, method."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.render_tables import STANDING, source
from benchmarks.results import reached

_HOW: Final = """\
**How it is measured.** A separate process drops a file into a folder every 100 ms, whether or not the job keeps up.
Each event carries the moment it was due, which is its event time too. 1,000 keys, windows of 10 s, a watermark 5 s
behind. An early pane's latency runs from the moment its last event was due to the moment the driver holds it. For an
on-time pane it starts when the event was due that moved the watermark past the window's end. Figures are medians over
the rounds; the first 30 of 90 seconds do not count. Each row changes one setting of the base.

**Lower bound.** A micro-batch lists files, plans, runs its tasks and writes two logs before the next one begins. An
event waits for the running batch, then for its own: at least about one and a half times the length of a small batch. A
`trigger` interval not much longer than a batch does not delay early panes; on-time panes wait for one more batch.
"""


@dataclass(frozen=True, slots=True)
class Aim:
    """A goal set before the measurement, and its result."""

    title: str
    value: float
    floor: float
    goal: float
    form: str
    native: float | None = None
    """Native Spark's value, unless the goal is relative to it."""

    @property
    def reached(self) -> str:
        """Standing against floor and goal."""
        return reached(self.value, self.floor, self.goal, lower=True)

    def shown(self, value: float) -> str:
        """Format a value in its unit."""
        return self.form.format(value)


def aimed(rungs: Sequence[dict[str, Any]]) -> tuple[Aim, ...]:
    """Return the goals for early panes; none if one of the two compared settings has no number."""
    known = {rung["rung"]: rung.get("early") for rung in rungs}
    base, native = known.get("base"), known.get("native")
    if not base or not native:
        return ()
    later, share = base["p50"] - native["p50"], 100 * (base["p99"] / native["p99"] - 1)
    return (
        Aim("p50", base["p50"], 350, 200, "{:.0f} ms", native["p50"]),
        Aim("p99", base["p99"], 600, 400, "{:.0f} ms", native["p99"]),
        Aim("p50 over native", later, 50, 50, "{:+.0f} ms"),
        Aim("p99 over native", share, 15, 15, "{:+.0f} %"),
    )


def aims(rungs: list[dict[str, Any]]) -> str:
    """Render the goals as a table."""
    found = aimed(rungs)
    if not found:
        return ""
    lines = ["| early panes at 10 k events/s | measured | native | floor | goal | |", "|---|---|---|---|---|---|"]
    for aim in found:
        measured, most, hoped = (aim.shown(each) for each in (aim.value, aim.floor, aim.goal))
        beside = "" if aim.native is None else aim.shown(aim.native)
        lines.append(f"| {aim.title} | {measured} | {beside} | ≤ {most} | ≤ {hoped} | {STANDING[aim.reached]} |")
    return "\n".join([*lines, "", _lowest(rungs)])


def _lowest(rungs: list[dict[str, Any]]) -> str:
    """Describe our setting with the lowest p50 at the base rate."""
    mine = [rung for rung in rungs if rung["rung"] != "native" and not rung["rung"].startswith("rate")]
    best = min((rung for rung in mine if rung.get("early")), key=lambda rung: float(rung["early"]["p50"]))
    early = best["early"]
    shown = f"p50 {early['p50']:.0f} ms and p99 {early['p99']:.0f} ms"
    return (
        f"Ours with the lowest p50 at this rate: {best['title']}, {shown}.\n"
        "Settings run one after the other on a machine whose speed varies: differences smaller than those between\n"
        "rounds of one setting are noise.\n"
    )


def latency(told: dict[str, Any]) -> str:
    """Render the section."""
    lines = [
        "| setting | early: p50 | p95 | p99 | on time: p50 | p95 | p99 | early panes | early p50 by round |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for rung in told["rungs"]:
        if rung["failure"]:
            lines.append(f"| {rung['title']} | failed: {rung['failure']} | | | | | | | |")
            continue
        figures = [
            f"{rung[timing][name]:.0f} ms" if timing in rung else "–"
            for timing in ("early", "on_time")
            for name in ("p50", "p95", "p99")
        ]
        rounds = ", ".join(f"{each['early']['p50']:.0f}" for each in told["latency"] if each["rung"] == rung["rung"])
        lines.append(f"| {rung['title']} | {' | '.join(figures)} | {rung['early']['panes']:,.0f} | {rounds} |")
    title = "## Latency of panes, by setting\n"
    return "\n".join([title, source(told, "latency.json"), "\n".join(lines) + "\n", aims(told["rungs"]), _HOW])
