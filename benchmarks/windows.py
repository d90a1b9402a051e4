"""`strandline bench windows`: windows against Spark's own and hand-written ones, and early-pane latency."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import latency, suite, turns
from benchmarks.medians import percentile
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run, measure, scratch, started
from benchmarks.suite import Cell, Latency
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant

RESULTS = Path(__file__).resolve().parent / "results" / "windows.json"
LATENCY = "latency"


def main(asked: Asked) -> int:
    """Measure the requested cells; return 0 if all numbers count, 1 if a run failed."""
    turns.end_with_the_run()
    chosen = suite.quick() if asked.quick else suite.full()
    rounds = asked.rounds or chosen.rounds
    cells = turns.chosen_cells(chosen, asked, [LATENCY])
    work, home = turns.work_folder(asked), turns.runs_folder(asked, chosen)

    def run(cell: Cell, round_: int, check: bool) -> Run:
        return measure(cell, round_, work, check=check)

    runs = list(turns.in_turns(chosen, cells, rounds, home, run))
    waits = _waited(chosen.latency, asked.only, rounds, work, home)
    corpora = turns.digests(work) if cells else {}
    told = to_results(Measured(runs, waits), chosen, turns.command_of("windows", asked), corpora)
    turns.publish(told, asked, RESULTS, home)
    return 1 if any(run.failure for run in runs) else 0


def _waited(asked: Latency | None, only: Sequence[str], rounds: int, work: Path, home: Path) -> list[dict[str, Any]]:
    """Run the open-loop runs, native and ours alternately."""
    if asked is None or (only and LATENCY not in only):
        return []
    found = []
    for round_ in range(min(rounds, 2)):
        for contestant in (Contestant.NATIVE_ROCKSDB, Contestant.OURS):
            path = home / f"latency-{contestant}-{round_}.json"
            if not path.exists():
                told = _wait(asked, contestant, work) | {"contestant": contestant.value, "round": round_}
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(told, indent=1) + "\n")
            told = json.loads(path.read_text())
            print(
                f"  latency {contestant:<16} round {round_ + 1}: {told.get('failure') or _milliseconds(told)}",
                flush=True,
            )
            found.append(told)
    return found


def _wait(asked: Latency, contestant: Contestant, work: Path) -> dict[str, Any]:
    home = scratch(work)
    order = {"contestant": contestant.value, "seconds": asked.seconds}
    (home / "order.json").write_text(json.dumps(order))
    _, code = started("benchmarks.latency", home)
    if code != 0:
        return {"failure": f"ended with code {code}: {(home / 'output.txt').read_text(errors='replace')[-300:]}"}
    told = json.loads((home / "run.json").read_text())
    shutil.rmtree(home, ignore_errors=True)
    waits = latency.latencies(told, asked.warm_up)
    if not waits:
        return {"failure": "not a single pane was seen after the warm-up"}
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: percentile(waits, share) for name, share in shares.items()} | {"panes": len(waits)}


def _milliseconds(told: dict[str, Any]) -> str:
    return ", ".join(f"{name} {told[name]:.0f} ms" for name in ("p50", "p95", "p99"))
