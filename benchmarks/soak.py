"""`strandline bench soak`: check that memory, state and open files of a long run do not grow.

The job is sampled every five seconds. The first third is left out, since a JVM fills its heap before it collects. A
straight line is fitted to the rest and its slope reported per hour; it is flat if it rises by less than a tenth of the
median.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import linear_regression, median
from typing import Any, Final

from benchmarks import machine, turns
from benchmarks.meter import Held, Looking, Sample, cpu_at, held
from benchmarks.runs import PATIENCE, last_words, scratch, started
from benchmarks.soaking import EVERY
from benchmarks.turns import Asked
from strandline.errors import RunError

RESULTS: Final = Path(__file__).resolve().parent / "results" / "soak.json"
QUICK, WHOLE = 2.0, 60.0
"""Minutes of a quick and of a full run."""
LEFT_OUT: Final = 1 / 3
FLAT: Final = 0.1
TELLING: Final = 10.0
"""Minimum minutes for a slope: state rises and falls with each window."""
FEWEST: Final = 3
"""Minimum number of samples for a line."""

HELD: Final = ("memory", "state", "files")
"""Quantities that must not grow."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Trend:
    """Trend of a quantity during a run."""

    middle: float
    least: float
    most: float
    per_hour: float
    rise: float
    """Rise of the line over the observed time, relative to the median."""

    @property
    def is_flat(self) -> bool:
        return self.rise < FLAT


def trend(points: Points) -> Trend:
    """Fit a straight line through all but the first third of the samples."""
    if len(points) < FEWEST:
        raise RunError("there is too little to see a slope in", hint="let it run for longer: --minutes 5")
    begin, end = points[0][0], points[-1][0]
    counted = [point for point in points if point[0] >= begin + LEFT_OUT * (end - begin)]
    values = [value for _, value in counted]
    slope = linear_regression([at - begin for at, _ in counted], values).slope
    middle = median(values)
    rise = slope * (counted[-1][0] - counted[0][0]) / middle if middle else 0.0
    return Trend(middle, min(values), max(values), 3600 * slope, rise)


def main(asked: Asked, minutes: float = 60, rate: int = 10_000) -> int:
    """Run for the given time; return 0 if all events are accounted for and nothing grew."""
    turns.end_with_the_run()
    told = measure(QUICK if asked.quick else minutes, rate, turns.work_folder(asked))
    command = "strandline bench soak --quick" if asked.quick else f"strandline bench soak --minutes {minutes:g}"
    whole = not asked.quick and minutes >= WHOLE
    kept = RESULTS if whole else turns.work_folder(asked) / "runs" / RESULTS.name
    kept.parent.mkdir(parents=True, exist_ok=True)
    facts = {"commit": machine.commit(), "command": command, "machine": machine.facts()}
    empty: dict[str, Any] = {"rows": [], "reported": [], "cells": [], "latency": [], "corpora": {}}
    kept.write_text(json.dumps(facts | empty | {"soak": told}, indent=1) + "\n")
    print(f"{to_text(told)}\n\nkept in {kept}")
    return 0 if not told["lost"] and all(told[each]["is_flat"] is not False for each in HELD) else 1


def measure(minutes: float, rate: int, work: Path) -> dict[str, Any]:
    """Run once and return the samples."""
    home = scratch(work)
    (home / "order.json").write_text(json.dumps({"seconds": 60 * minutes, "rate": rate}))
    watches: list[Looking[Held]] = []

    def beside(leader: int) -> Looking[Held]:
        watches.append(Looking(lambda: held(leader), EVERY))
        return watches[-1]

    samples, code = started("benchmarks.soaking", home, beside, 60 * minutes + PATIENCE)
    if code != 0:
        raise RunError("the run failed", detail=last_words(home, code), hint=f"look into {home}")
    run = json.loads((home / "run.json").read_text())
    shutil.rmtree(home, ignore_errors=True)
    return soaked(run, samples, minutes, rate, watches[0].looks)


def holders(looks: Sequence[Held], since: float, until: float) -> dict[str, list[int]]:
    """Return memory by process name after the first third and at the end, medians over a tenth of the time."""
    span = until - since
    first, last = since + LEFT_OUT * span, until - span / 10
    ends = [_held(looks, first, first + span / 10), _held(looks, last, until)]
    # A forking process exists twice for a moment; most samples see neither.
    lasting = sorted(name for name in {*ends[0], *ends[1]} if any(end.get(name, 0) for end in ends))
    return {name: [end.get(name, 0) for end in ends] for name in lasting}


def _held(looks: Sequence[Held], since: float, until: float) -> dict[str, int]:
    seen = [each.resident_bytes for each in looks if since <= each.moment <= until]
    names = {name for each in seen for name in each}
    return {name: int(median(each.get(name, 0) for each in seen)) for name in names}


def soaked(
    run: dict[str, Any], samples: Sequence[Sample], minutes: float, rate: int, looks: Sequence[Held]
) -> dict[str, Any]:
    """Build the results of a run."""
    seen = [each for each in run["seen"] if run["began"] <= each["at"] <= run["ended"]]
    memory = every(samples, run["began"], run["ended"])
    read = seen[-1]["read"] - seen[0]["read"] if seen else 0
    used = cpu_at(samples, run["ended"]) - cpu_at(samples, run["began"])
    return {
        "minutes": minutes,
        "rate": rate,
        "events": run["sent"],
        "lost": max(run["sent"] - run["known"], run["sent"] - run["read"], 0),
        "memory": _told(trend(memory), minutes),
        "state": _told(trend([(each["at"], each["bytes"]) for each in seen]), minutes),
        "files": _told(trend(opened(looks, run["began"], run["ended"])), minutes),
        "waited": _told(trend([(each["at"], each["waited"]) for each in seen]), minutes),
        "held": holders(looks, run["began"], run["ended"]),
        "batches": seen[-1]["batches"] - seen[0]["batches"],
        "cpu_seconds": round(used, 1),
        "per_cpu_second": round(read / used) if used else None,
        "seen": [
            {"second": round(at - run["began"], 1), "memory": value} for at, value in memory
        ],
        "states": [{"second": round(each["at"] - run["began"], 1), **_without(each, "at")} for each in seen],
    }  # fmt: skip


def every(samples: Sequence[Sample], since: float, until: float) -> list[tuple[float, float]]:
    """Return resident memory, one sample per five seconds."""
    found: list[tuple[float, float]] = []
    for sample in samples:
        if since <= sample.moment <= until and (not found or sample.moment >= found[-1][0] + EVERY):
            found.append((sample.moment, float(sample.resident_bytes)))
    return found


def opened(looks: Sequence[Held], since: float, until: float) -> Points:
    """Return the number of open files and sockets; a job that leaks them stops eventually."""
    return [(each.moment, float(each.files)) for each in looks if since <= each.moment <= until]


def _told(found: Trend, minutes: float) -> dict[str, Any]:
    return asdict(found) | {"is_flat": found.is_flat if minutes >= TELLING else None}


def _without(each: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in each.items() if key != name}


def to_text(told: dict[str, Any]) -> str:
    """Format the results as text."""
    lost = f"{told['lost']:,} EVENTS LOST" if told["lost"] else "every one accounted for"
    lines = [f"{told['minutes']:g} minutes at {told['rate']:,} events a second: {told['events']:,} events, {lost}"]
    for name, unit, size in (
        ("memory", "MB", 2**20), ("state", "kB", 2**10), ("files", "open", 1), ("waited", "ms", 1e-3)
    ):  # fmt: skip
        each = told[name]
        verdict = {True: "flat", False: "RISES", None: "too short to tell"}[each["is_flat"]]
        lines.append(
            f"  {name:<7} {each['middle'] / size:10,.1f} {unit}, from {each['least'] / size:,.1f} to "
            f"{each['most'] / size:,.1f}; {each['per_hour'] / size:+,.1f} {unit} an hour "
            f"({each['rise']:+.1%} while it was looked at): {verdict}"
        )
    for name, (first, last) in told["held"].items():
        lines.append(
            f"    {name:<16} {first / 2**20:8,.1f} MB after the first third, {last / 2**20:,.1f} MB at the end"
        )
    return "\n".join(lines)
