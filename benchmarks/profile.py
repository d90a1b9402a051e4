"""`strandline bench profile`: show where a run spends its time, by thread, task activity and batch stage.

CPU time comes from the operating system, thread by thread. Tasks measure their activities by wall clock, which is too
high on a busy machine; the rest of their CPU time is reported as transport.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from benchmarks import feeds, scale, shapes, sources, suite, turns
from benchmarks.broker import Broker
from benchmarks.meter import Looking, Sample
from benchmarks.nexmark import bench as nexmark
from benchmarks.nexmark.bench import Question
from benchmarks.nexmark.events import written
from benchmarks.runs import FEW, feed_of, last_words, miscounted, scratch, started, weighed
from benchmarks.suite import Cell
from benchmarks.threads import ORDER, POLARS, WORKERS, Look, between, watch
from benchmarks.turns import Asked
from benchmarks.workloads import to_json
from strandline.errors import PlanError, RunError
from strandline.observe.metrics.measure import stages_of
from strandline.observe.metrics.metrics import STAGES

UNSEEN: Final = "between two looks"
_MINE: Final = ("read", "prepare", "step")
"""Stages computed in the workers."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Time of the counted batches by category."""

    cell: str
    events: int
    wall_seconds: float
    cpu_seconds: float
    """Of the whole process tree."""
    threads: Mapping[str, float]
    """CPU seconds by thread purpose, including unobserved time, so that the sum is complete."""
    tasks: Mapping[str, float]
    """Seconds of all tasks by activity, if reported."""
    crossing: float | None
    """CPU seconds of the workers outside of that."""
    stages: Mapping[str, float]
    """Batch seconds by stage, if reported."""


def main(asked: Asked, cell: str = "ours", *, as_json: bool = False) -> int:
    """Run a cell once and print where its time went."""
    turns.end_with_the_run()
    known = {each.name: each for each in cells(quick=asked.quick)}
    if cell not in known:
        raise PlanError(f"there is no cell {cell!r}", hint=f"choose of: {', '.join(sorted(known))}")
    work = turns.work_folder(asked)
    chosen = known[cell]
    with sources.broker(work) if isinstance(chosen, Cell) and chosen.form else nullcontext() as broker:
        found = measure(chosen, work, broker)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
    else:
        Console(highlight=False).print(told(found))
    return 0


def cells(*, quick: bool) -> Iterator[Cell | Question]:
    """Return the profilable cells of five benchmarks, which check them."""
    for each in (suite, shapes, sources, scale):
        chosen = each.quick() if quick else each.full()
        for group in chosen.groups:
            yield from group.cells
    for asked in (nexmark.quick() if quick else nexmark.full()).groups:
        yield from asked.cells


def measure(cell: Cell | Question, work: Path, broker: Broker | None = None) -> Profile:
    """Run a cell with CPU metering and thread sampling."""
    home = scratch(work)
    module, order = _order(cell, work, broker)
    (home / "order.json").write_text(json.dumps(order))
    watches: list[Looking[Look]] = []

    def beside(leader: int) -> Looking[Look]:
        watches.append(watch(leader))
        return watches[-1]

    samples, code = started(module, home, beside)
    if code != 0:
        raise RunError(f"the run of {cell.name} failed", detail=last_words(home, code), hint=f"look into {home}")
    timed = json.loads((home / "run.json").read_text())["timed"]
    lost = miscounted(cell, timed) if isinstance(cell, Cell) else nexmark.miscounted(timed)
    if lost:
        raise RunError("a run that loses count has no profile", detail=lost, hint=f"look into {home}")
    shutil.rmtree(home, ignore_errors=True)
    return profile_of(cell, timed["batches"], samples, watches[0].looks)


def _order(cell: Cell | Question, work: Path, broker: Broker | None) -> tuple[str, dict[str, Any]]:
    """Return the contestant module and its order."""
    if isinstance(cell, Question):
        return nexmark.CONTESTANT, nexmark.order_of(cell, written(cell.log, work / "corpora")[0])
    return "benchmarks.contestant", {
        "contestant": cell.contestant.value,
        "workload": to_json(cell.workload),
        "feed": feeds.to_json(feed_of(cell, cell.corpus, work, broker)),
        "check": None,
        "warm_up": cell.warm_seconds,
        "room": {"cores": cell.cores, "partitions": cell.partitions},
    }


def profile_of(
    cell: Cell | Question, batches: Sequence[dict[str, Any]], samples: Sequence[Sample], looks: Sequence[Look]
) -> Profile:
    """Compute the use of the counted batches, as in `bench windows`."""
    run = weighed(cell, 0, batches, samples)
    counted = [batch for batch in batches if batch["rows"] > FEW][-run.counted :]
    threads = between(looks, counted[0]["started"], counted[-1]["ended"])
    unseen = run.cpu_seconds - sum(threads.values())
    tasks = _sum(batch.get("busy", {}) for batch in counted)
    workers = threads.get(POLARS, 0.0) + threads.get(WORKERS, 0.0)
    stages = _sum(_stages(batch, cell.cores) for batch in counted)
    return Profile(
        cell.name,
        run.events,
        run.wall_seconds,
        run.cpu_seconds,
        threads | ({UNSEEN: unseen} if unseen > 0 else {}),
        {name: tasks[name] for name in STAGES if name in tasks},
        max(workers - sum(tasks.get(name, 0.0) for name in _MINE), 0.0) if tasks else None,
        {name: stages[name] for name in STAGES if name in stages},
    )


def _stages(batch: dict[str, Any], cores: int) -> dict[str, float]:
    if "took" not in batch:
        return {}
    return stages_of(batch["took"], batch["busy"], batch.get("milliseconds", {}), cores)


def _sum(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for one in each:
        for name, seconds in one.items():
            sums[name] += seconds  # type: ignore[assignment] # seconds are no whole numbers
    return dict(sums)


def told(found: Profile) -> Group:
    """Format three tables, each a different breakdown of the same batches."""
    speed = found.events / found.cpu_seconds
    head = f"{found.cell}: {found.events:,} events, {found.cpu_seconds:.1f} CPU-seconds in {found.wall_seconds:.1f} s"
    parts: list[Any] = [Text(f"{head}, {speed:,.0f} events per CPU-second"), Text()]
    ordered = [name for name in (*ORDER, UNSEEN) if name in found.threads]
    parts.append(_table("CPU time", {name: found.threads[name] for name in ordered}, found))
    if found.tasks:
        tasks = dict(found.tasks)
        if found.crossing is not None:
            tasks["crossing, by difference"] = found.crossing
        parts += [Text(), _table("what tasks did, together", tasks, found)]
    if found.stages:
        parts += [Text(), _table("time of batches", found.stages, found)]
    return Group(*parts)


def _table(title: str, seconds: Mapping[str, float], found: Profile) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, min_width=40)
    for name in ("seconds", "share", "ns an event"):
        table.add_column(name, justify="right")
    whole = sum(seconds.values()) or 1.0
    for name, each in seconds.items():
        table.add_row(name, f"{each:.2f}", f"{each / whole:.0%}", f"{1e9 * each / found.events:,.0f}")
    return table
