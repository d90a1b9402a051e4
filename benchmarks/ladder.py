"""`strandline bench latency`: measure pane latency at fixed rates, one setting changed at a time.

Events are due on a fixed schedule (`latency.py`). An early pane's latency starts when its last event was due; an
on-time pane's, when the event was due that moved the watermark past the end of its window.
"""

import json
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import latency, machine, turns
from benchmarks.latency import Setting
from benchmarks.medians import percentile
from benchmarks.runs import last_words, scratch, started
from benchmarks.suite import Latency
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant
from strandline.errors import PlanError
from strandline.spark.launch.session import JAVA, SERIAL

RESULTS: Final = Path(__file__).resolve().parent / "results" / "latency.json"
BOTH_COMPILERS: Final = {JAVA: f"-XX:TieredStopAtLevel=4 {SERIAL}"}
SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Rung:
    """One measured setting: name, title and parameters."""

    name: str
    title: str
    setting: Setting = Setting()
    contestant: Contestant = Contestant.OURS


RUNGS: Final = (
    Rung("base", "10 k events/s, a batch as soon as the last one ends, 2 partitions"),
    Rung("native", "the same in native PySpark, update mode, RocksDB", contestant=Contestant.NATIVE_ROCKSDB),
    Rung("both-compilers", "the JVM with its second compiler, which such a job does without",
         Setting(settings=BOTH_COMPILERS)),
    Rung("partitions-1", "1 partition", Setting(partitions=1)),
    Rung("partitions-4", "4 partitions", Setting(partitions=4)),
    Rung("key-groups-2", "2 key groups in place of 4: one step in a task, and state that can be spread half as far",
         Setting(key_groups=2)),
    Rung("trigger-500ms", "a batch every 0.5 s", Setting(trigger="500 milliseconds")),
    Rung("trigger-1s", "a batch every second", Setting(trigger="1 second")),
    Rung("rate-1k", "1 k events/s", Setting(rate=1_000)),
    Rung("rate-50k", "50 k events/s", Setting(rate=50_000)),
)  # fmt: skip
AT_FIRST: Final = ("base", "native", "partitions-1", "trigger-500ms", "rate-1k")
"""One of each kind, for a quick run."""


def main(asked: Asked) -> int:
    """Measure the requested settings; return 0 if all numbers count, 1 if a run failed."""
    turns.end_with_the_run()
    length, rounds = (Latency(12, 4), 1) if asked.quick else (Latency(90, 30), 2)
    work = turns.work_folder(asked)
    home = work / "runs" / f"{machine.commit()}-latency{'-quick' if asked.quick else ''}"
    if asked.again:
        shutil.rmtree(home, ignore_errors=True)
    found = []
    for round_ in range(asked.rounds or rounds):
        climbed = chosen(asked.only, quick=asked.quick)
        for rung in climbed if round_ % 2 == 0 else climbed[::-1]:
            path = home / f"{rung.name}-{round_}.json"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(climb(rung, length, work) | {"round": round_}, indent=1) + "\n")
            found.append(json.loads(path.read_text()))
            print(_line(found[-1]), flush=True)
    publish(found, turns.command_of("latency", asked), RESULTS if asked.is_whole else home / RESULTS.name)
    return 1 if any(told.get("failure") for told in found) else 0


def chosen(only: Collection[str], *, quick: bool) -> list[Rung]:
    """Return the requested settings."""
    names = [rung.name for rung in RUNGS]
    for name in only:
        if name not in names:
            raise PlanError(f"there is no rung {name!r}", hint=f"choose of: {', '.join(names)}")
    wanted = only or (AT_FIRST if quick else names)
    return [rung for rung in RUNGS if rung.name in wanted]


def climb(rung: Rung, length: Latency, work: Path) -> dict[str, Any]:
    """Run one setting and return its pane latencies."""
    home = scratch(work)
    told: dict[str, Any] = {"rung": rung.name, "title": rung.title, "setting": asdict(rung.setting)}
    order = {"contestant": rung.contestant.value, "seconds": length.seconds, "setting": asdict(rung.setting)}
    (home / "order.json").write_text(json.dumps(order))
    _, code = started("benchmarks.latency", home)
    if code != 0:
        return told | {"failure": last_words(home, code)}
    run = json.loads((home / "run.json").read_text())
    shutil.rmtree(home, ignore_errors=True)
    waits = {"early": latency.latencies(run, length.warm_up), "on_time": latency.on_time(run, length.warm_up)}
    if not waits["early"]:
        return told | {"failure": "not a single pane was seen after the warm-up"}
    return told | {timing: summed(each) for timing, each in waits.items() if each}


def summed(waits: list[float]) -> dict[str, float]:
    """Summarise latencies in milliseconds."""
    shares = {name: round(percentile(waits, share), 1) for name, share in SHARES.items()}
    return shares | {"max": round(max(waits), 1), "panes": len(waits)}


def publish(found: list[dict[str, Any]], command: str, target: Path) -> None:
    """Store and print the results."""
    told = {
        "commit": machine.commit(), "command": command, "machine": machine.facts(), "rows": [], "reported": [],
        "cells": [], "latency": found, "rungs": medians(found), "corpora": {},
    }  # fmt: skip
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(told, indent=1) + "\n")
    print(f"\nkept in {target}")


def medians(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each setting's medians over its rounds; no number if one failed."""
    told = []
    for name in dict.fromkeys(each["rung"] for each in found):
        mine = [each for each in found if each["rung"] == name]
        failure = "; ".join(each["failure"] for each in mine if each.get("failure"))
        rung: dict[str, Any] = {"rung": name, "title": mine[0]["title"], "rounds": len(mine), "failure": failure}
        for timing in ("early", "on_time"):
            known = [each[timing] for each in mine if timing in each]
            if known and not failure:
                rung[timing] = {what: median(each[what] for each in known) for what in known[0]}
        told.append(rung)
    return told


def _line(told: dict[str, Any]) -> str:
    begun = f"  {told['rung']:<14} round {told['round'] + 1}: "
    if told.get("failure"):
        return f"{begun}FAILED, {told['failure']}"
    parts = [
        f"{timing.replace('_', ' ')} " + ", ".join(f"{name} {told[timing][name]:.0f}" for name in SHARES) + " ms"
        for timing in ("early", "on_time")
        if timing in told
    ]
    return begun + "; ".join(parts)
