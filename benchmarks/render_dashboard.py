"""Render the page's section on the dashboard: response times, first paint, memory."""

from typing import Any, Final

from benchmarks.render_tables import source

_HOW: Final = """\
**How it is measured.** `strandline dashboard` runs in its own process with {jobs} jobs that have a day of history each
({history:.0f} MB in all). Each route is requested {rounds} times over one connection on the same machine; then Chromium
opens the page with an empty cache. Memory is the peak of the process.
"""


def dashboard(told: dict[str, Any]) -> str:
    """Render the section."""
    times, goals = told["milliseconds"], told["goals"]
    route, slowest = max(times["routes"].items(), key=lambda each: each[1]["p95"])
    rows = [_row(f"p95 of the slowest route, `{route}`", slowest["p95"], goals["slowest route, p95"], "ms")]
    if "first paint" in times:
        rows.append(_row("first paint of the page of all jobs", times["first paint"], goals["first paint"], "ms"))
    rows.append(_row("memory", told["megabytes"]["memory"], goals["memory"], "MB"))
    table = "\n".join(["| what | measured | goal | |", "|---|---|---|---|", *rows, ""])
    how = _HOW.format(jobs=told["jobs"], rounds=told["rounds"], history=told["megabytes"]["history"])
    return "\n".join(["## Dashboard: response times\n", source(told, "dashboard.json"), table, how])


def _row(what: str, measured: float, goal: float, unit: str) -> str:
    verdict = "goal reached" if measured < goal else "**goal not reached**"
    return f"| {what} | {measured:.0f} {unit} | < {goal:.0f} {unit} | {verdict} |"
