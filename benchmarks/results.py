"""Convert runs to result rows with ratio, floor, goal and spread, and to the printed table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks import machine
from benchmarks.medians import Spread, ratios, spread
from benchmarks.runs import Run
from benchmarks.suite import LATENCY_FLOOR, LATENCY_GOAL, Row, Suite
from benchmarks.workloads import Contestant


@dataclass(frozen=True, slots=True)
class Measured:
    """All runs: by cell and round, and the open-loop runs."""

    runs: Sequence[Run]
    waits: Sequence[dict[str, Any]] = ()
    by_wall: bool = False
    """Compared by events per second, because the run waits for another system."""

    def rates(self, cell: str, *, by_wall: bool = False) -> dict[int, float]:
        """Return events per CPU second, or per second, by round; none if a run failed."""
        mine = [run for run in self.runs if run.cell == cell]
        if any(run.failure for run in mine):
            return {}
        return {run.round: run.per_second if self.by_wall or by_wall else run.per_cpu_second for run in mine}

    def ratios(self, row: Row) -> list[float]:
        """Return a row's ratio for each round in which all its cells were measured."""
        rates = [self.rates(cell, by_wall=row.by_wall) for cell in row.cells]
        shared = set.intersection(*(set(each) for each in rates))
        cell, peer, *others = ({round_: each[round_] for round_ in shared} for each in rates)
        found = ratios(cell, peer)
        return [one / other for one, other in zip(found, ratios(*others), strict=True)] if others else found

    def failures(self, *cells: str) -> str:
        return "; ".join(f"{run.cell}: {run.failure}" for run in self.runs if run.cell in cells and run.failure)


def to_results(measured: Measured, suite: Suite[Any], command: str, corpora: dict[str, str]) -> dict[str, Any]:
    """Build the stored results: rows, reported rows, machine."""
    last = [] if suite.latency is None else [_latency(measured.waits)]
    return {
        "commit": machine.commit(),
        "command": command,
        "machine": machine.facts(),
        "rows": [*(_row(row, measured) for row in suite.rows), *last],
        "reported": [_row(row, measured) for row in suite.reported],
        "cells": _cells(measured.runs),
        "latency": list(measured.waits),
        "corpora": corpora,
    }


def _row(row: Row, measured: Measured) -> dict[str, Any]:
    told = _compared(row.name, row.against, measured.ratios(row), (row.floor, row.goal), lower=row.lower_is_better)
    return told | {"unit": "x", "failure": measured.failures(*row.cells), "cell": row.cell, "peer": row.peer}


def _latency(waits: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return milliseconds over native at the median, per round."""
    ours = {told["round"]: told["p50"] for told in waits if told["contestant"] == Contestant.OURS and "p50" in told}
    native = {told["round"]: told["p50"] for told in waits if told["contestant"] != Contestant.OURS and "p50" in told}
    over = [ours[round_] - native[round_] for round_ in sorted(ours.keys() & native.keys())]
    against = "early-pane latency over native at 10 k events/s"
    told = _compared("latency", against, over, (LATENCY_FLOOR, LATENCY_GOAL), lower=True)
    failure = "; ".join(f"{told['contestant']}: {told['failure']}" for told in waits if told.get("failure"))
    return told | {"unit": "ms", "failure": failure, "cell": "latency-ours", "peer": "latency-native"}


def _compared(
    name: str, against: str, found: list[float], wanted: tuple[float | None, float | None], *, lower: bool
) -> dict[str, Any]:
    floor, goal = wanted
    middle = spread(found) if found else None
    return {
        "name": name,
        "against": against,
        "ratio": None if middle is None else round(middle.median, 3),
        "floor": floor,
        "goal": goal,
        "lower_is_better": lower,
        "spread": None if middle is None else _rounded(middle),
        "reached": reached(None if middle is None else middle.median, floor, goal, lower=lower),
    }


def _rounded(middle: Spread) -> dict[str, Any]:
    return {name: round(value, 3) for name, value in asdict(middle).items()}


def reached(ratio: float | None, floor: float | None, goal: float | None, *, lower: bool) -> str:
    """Classify a ratio: `goal`, `floor`, `below` the floor, `reported` without bounds, or `not measured`."""
    if ratio is None:
        return "not measured"
    if floor is None or goal is None:
        return "reported"
    sign = -1 if lower else 1
    if sign * ratio >= sign * goal:
        return "goal"
    return "floor" if sign * ratio >= sign * floor else "below"


def _cells(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return all cells: medians, memory, state, and check result."""
    found = []
    for name in dict.fromkeys(run.cell for run in runs):
        mine = [run for run in runs if run.cell == name]
        good = [run for run in mine if not run.failure]
        checked = next((run.checked for run in mine if run.checked), {})
        told: dict[str, Any] = {"name": name, "rounds": len(mine), "failures": [r.failure for r in mine if r.failure]}
        if good:
            told |= {
                "events": good[0].events,
                "warm_up": len(good[0].batch_cpu) - good[0].counted,
                "warm_seconds": good[0].warm_seconds,
                "per_cpu_second": _rounded(spread([run.per_cpu_second for run in good])),
                "per_second": _rounded(spread([run.per_second for run in good])),
                "peak_bytes": max(run.peak_bytes for run in good),
                "load_before": [round(run.load, 2) for run in good],
                "batch_cpu": [[round(cpu, 3) for cpu in run.batch_cpu] for run in good],
            }
        if any(run.broker_seconds for run in good):
            told["broker_cpu_seconds"] = round(median(run.broker_seconds for run in good), 2)
        found.append(told | ({"checked": checked} if checked else {}))
    return found


def to_table(told: dict[str, Any]) -> str:
    """Format the measured rows as text."""
    lines = [f"{'against':<68} {'ratio':>10} {'floor':>8} {'goal':>8}  reached"]
    for row in (*told["rows"], *told["reported"]):
        if row["reached"] == "not measured" and not row["failure"]:
            continue
        ratio, floor, goal = (shown(row[name], row["unit"]) for name in ("ratio", "floor", "goal"))
        lines.append(f"{row['against']:<68} {ratio:>10} {floor:>8} {goal:>8}  {row['failure'] or row['reached']}")
    return "\n".join(lines)


def shown(value: float | None, unit: str) -> str:
    """Format a ratio or a time."""
    if value is None:
        return "–"
    if unit == "ms":
        return f"{value:+.0f} ms"
    return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"
