"""Render the table of the last campaign into docs/explanation/delivery.md.

usage: .venv/bin/python -m proof.render [--check]      --check only compares
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proof.campaign import JOBS, PROCESSES, RESULTS, jobs_of
from proof.zygote import ROOT

PAGE: Final = ROOT / "docs" / "explanation" / "delivery.md"
BEGIN: Final = "<!-- proved: written by python -m proof.render -->"
END: Final = "<!-- end -->"


def main(arguments: Sequence[str]) -> int:
    page = PAGE.read_text()
    made = written(page, json.loads(RESULTS.read_text()) if RESULTS.exists() else None)
    if "--check" in arguments:
        if made != page:
            print(f"{PAGE.name} is not what {RESULTS.name} says: run python -m proof.render")
        return int(made != page)
    PAGE.write_text(made)
    return 0


def written(page: str, told: Mapping[str, Any] | None) -> str:
    """Return the page with the results between its markers; empty without results."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{'' if told is None else section(told)}{END}{after}"


def section(told: Mapping[str, Any]) -> str:
    """Render the table, its origin and the other faults."""
    lines = [
        "| killed | delivery | sink | kills | events | lost | repeated | recovery p50 / p95 |",
        "|---|---|---|---:|---:|---:|---:|---:|",
        *(_row(row) for row in told["rows"]),
    ]
    return "\n".join([_source(told), *lines, "", *_rest(told), ""])


def _row(row: Mapping[str, Any]) -> str:
    times = [row["recovery_p50"], row["recovery_p95"]]
    shown = "–" if None in times else f"{times[0]:.1f} s / {times[1]:.1f} s"
    counts = " | ".join(f"{row[name]:,}" for name in ("kills", "events", "lost", "repeated"))
    return f"| {row['by']} | `{row['semantics']}` | {row['sink']} | {counts} | {shown} |"


def _source(told: Mapping[str, Any]) -> str:
    machine = told["machine"]
    return (
        f"Measured on {machine['date']}, commit {told['commit']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']};\ncommand `{told['command']}`. All tables of a job met the same kills.\n"
        f"{_sorts(told)}\n" + (f"\n{told['note']}\n" if told.get("note") else "")
    )


def _sorts(told: Mapping[str, Any]) -> str:
    """Describe how many kills hit processes and jobs."""
    kills = {by: sum(each["kills"] for each in told["rounds"] if each["by"] == by) for by in (JOBS, PROCESSES)}
    return (
        f"{kills[PROCESSES]:,} kills hit a *process without Spark*: a real driver with real sinks, ledgers and "
        "services, and a stand-in for\nSpark's file handling, forked from a server process. "
        f"{kills[JOBS]:,} kills hit a whole *job on Spark*:\nPython, JVM and workers, with one table per row below. "
        f"The command asks for {told['asked']:,} and {jobs_of(told['asked']):,}, and resumes after\nan interruption."
    )


def _rest(told: Mapping[str, Any]) -> list[str]:
    caught = [bug for bug in told["bugs"] if bug["caught_after"] is not None]
    latest = max((bug["caught_after"] for bug in caught), default=0)
    points = ", ".join(f"{name} {times}" for name, times in told["points"].items())
    looks, panes = (sum(each[name] for each in told["rounds"]) for name in ("looks", "panes"))
    wrong = [fault for each in told["rounds"] for fault in each["faults"]]
    return [
        f"- Killed at: {points}.",
        f"- The reference recomputed {panes:,} panes, one element at a time. Readers checked tables {looks:,} times,",
        f"  while jobs wrote them and between restarts: {len(wrong)} differences.",
        f"- {told['drivers']['rounds']} rounds of two drivers: {len(told['drivers']['faults'])} faults.",
        *(_other(each) for each in told["others"]),
        f"- {len(caught)} of {len(told['bugs'])} injected bugs were found by enumerated crashes,",
        f"  the last after {latest} crashes.",
    ]


def _other(told: Mapping[str, Any]) -> str:
    fates = "".join(f", {times} {name}" for name, times in sorted(told["fates"].items()))
    return (
        f"- {told['fault'].capitalize()}, {told['sink']}: {told['rounds']} rounds{fates}; {len(told['faults'])} faults."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
