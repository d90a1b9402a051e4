"""Run the campaign: rounds of kills, each stored as it ends, resumable after an interruption.

A round is one job with a table per sink and delivery, so that all meet the same kills. Its seed is its number. The
folder of rounds is named by the commit, so results never outlive the tested code.
"""

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks import machine
from benchmarks.medians import percentile
from proof.archive import archived
from proof.bugs import BUGS
from proof.forked import asleep, drawn, killed
from proof.hunt import hunt
from proof.jobs import Real
from proof.killing import Line, Round, play
from proof.others import TORN, others
from proof.places import SERVED, SINKS, place
from proof.schedule import schedule
from proof.stores import store_of
from proof.zygote import Zygote
from strandline.plan.endpoints import Delivery
from strandline.services.service import Service

KILLS: Final = 1_000
"""Kills of processes; jobs get a tenth, since each takes a hundred times as long and covers all sinks."""
A_ROUND: Final = 10
JOBS, PROCESSES = "job on Spark", "process without Spark"
BESIDE: Final = ("duckdb", "folder")
"""Sinks tested with processes only, a tenth of the kills each."""
DRIVERS: Final = 25
"""Rounds with two drivers, per sink."""
RESULTS: Final = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "delivery.json"

Say = Callable[[str], None]


def jobs_of(kills: int) -> int:
    """Return the number of Spark jobs to kill for a number of processes."""
    return max(A_ROUND, kills // 10)


def work_folder(asked: Path | None) -> Path:
    """Return the folder of rounds: the user's cache, unless given."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    home = Path(cache) / "strandline" / "proof" if asked is None else asked.absolute()
    return home / machine.commit()


def one_round(
    seed: int, kills: int, sinks: Sequence[str], semantics: Sequence[str], services: Mapping[str, Service], say: Say,
    java: str = "",
) -> Round:  # fmt: skip
    """Run one job with the given kills; keep its folder if something was wrong."""
    folder = Path(tempfile.mkdtemp(prefix="proof-"))
    stores = tuple(place(each, f"round-{folder.name}", folder, services) for each in sinks)
    told = play(
        Real(str(folder), stores, tuple(semantics), java=java),
        seed,
        schedule(seed, kills, semantics, sinks),
        services,
        say,
    )
    if not told.faults and not any(line.faults for line in told.lines):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        say(f"something was wrong; what the job left is in {folder}")
    return told


def rounds(
    kills: int, sinks: Sequence[str], services: Mapping[str, Service], home: Path, say: Say, found: list[dict[str, Any]]
) -> Iterator[None]:
    """Run rounds and collect their results; stored rounds are not repeated."""
    seed, done, java = 0, 0, archived(home.parent, say)
    while done < kills:
        seed += 1
        kept = home / f"round-{seed}.json"
        if not kept.exists():
            say(f"round {seed}: {done} of {kills} kills so far")
            told = one_round(seed, min(A_ROUND, kills - done), sinks, [*Delivery], services, say, java)
            _keep(kept, told.plain())
        found.append(json.loads(kept.read_text()))
        done += found[-1]["kills"]
        yield


def process_round(
    zygote: Zygote, seed: int, kills: int, sink: str, services: Mapping[str, Service], semantics: Sequence[str] = ()
) -> dict[str, Any]:  # fmt: skip
    """Run one process without Spark with the given kills; one table per delivery."""
    start = time.monotonic()
    points = drawn(seed, kills)
    with tempfile.TemporaryDirectory(prefix="proof-") as folder:
        mine = Path(folder)
        told = killed(zygote, place(sink, f"process-{mine.name}", mine, services), mine, points)
    lines = [
        asdict(Line(delivery.value, sink, each.events, each.lost, each.repeated, each.faults))
        for delivery, each in told.verdicts.items()
        if not semantics or delivery in semantics
    ]
    return {
        "by": PROCESSES, "seed": seed, "kills": told.kills, "recoveries": [], "lines": lines, "looks": told.looks,
        "points": dict(Counter(point.partition(":")[0] for point in points)), "faults": list(told.faults), "panes": 0,
        "seconds": round(time.monotonic() - start, 1),
    }  # fmt: skip


def process_rounds(
    kills: int, sinks: Sequence[str], services: Mapping[str, Service], home: Path, say: Say
) -> list[dict[str, Any]]:
    """Distribute the kills over the sinks and run them; stored rounds are not repeated.

    A life with Kafka takes ten times as long, so Kafka gets a third of the kills of the others.
    """
    turns = [sink for sink in sinks for _ in range(1 if sink == "kafka" else 3)]
    found: list[dict[str, Any]] = []
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="proof-") as folder, Zygote(Path(folder) / "log") as zygote:
        for number in range(-(-kills // A_ROUND)):
            sink = turns[number % len(turns)]
            kept = home / f"process-{sink}-{number + 1}.json"
            if not kept.exists():
                _keep(kept, process_round(zygote, number + 1, A_ROUND, sink, services))
                say(f"processes: {(number + 1) * A_ROUND} of {kills} kills, {sink}")
            found.append(json.loads(kept.read_text()))
    return found


def bugs(services: Mapping[str, Service], home: Path, say: Say) -> list[dict[str, Any]]:
    """Hunt each bug through the enumerated crashes."""
    found = []
    for bug in BUGS.values():
        if bug.store in SERVED and bug.store not in services:
            continue
        kept = home / f"bug-{bug.name}.json"
        if not kept.exists():
            _keep(kept, hunted(bug.name, services))
            say(f"bug {bug.name}: {json.loads(kept.read_text())['caught_after']}")
        found.append(json.loads(kept.read_text()))
    return found


def hunted(name: str, services: Mapping[str, Service]) -> dict[str, Any]:
    """Return after how many crashes a bug is caught, and by which; None if it is not."""
    bug = BUGS[name]
    with tempfile.TemporaryDirectory(prefix="proof-") as folder:
        numbers = iter(range(10_000))
        caught = hunt(
            bug, Path(folder),
            lambda each: store_of(place(bug.store, f"bug-{Path(folder).name}-{next(numbers)}", each, services)),
        )  # fmt: skip
    told = {"name": name, "says": bug.says, "sink": bug.store}
    if caught is None:
        return {**told, "caught_after": None, "by": "", "fault": ""}
    return {**told, "caught_after": caught.after, "by": caught.state, "fault": caught.fault}


def drivers(sinks: Sequence[str], services: Mapping[str, Service], home: Path, say: Say) -> dict[str, Any]:
    """Run two drivers as processes: one pauses during a batch while the other takes over."""
    kept = home / "drivers.json"
    if not kept.exists():
        faults: list[str] = []
        with tempfile.TemporaryDirectory(prefix="proof-") as folder, Zygote(Path(folder) / "log") as zygote:
            for sink in sinks:
                mine = Path(folder) / sink
                store = place(sink, f"drivers-{Path(folder).name}", mine, services)
                faults += [f"{sink}: {each}" for each in asleep(zygote, store, mine, DRIVERS).faults]
                say(f"{DRIVERS} rounds of two drivers, {sink}: {len(faults)} faults so far")
        _keep(kept, {"rounds": DRIVERS * len(sinks), "faults": faults})
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def _keep(path: Path, told: Mapping[str, Any]) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(told, indent=1) + "\n")
    draft.replace(path)


def rows(played: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Build the table: each delivery and sink over all rounds, jobs and processes separately."""
    return [row for by in (JOBS, PROCESSES) for row in _rows(by, [each for each in played if each["by"] == by])]


def _rows(by: str, played: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    recoveries = sorted(each for round_ in played for each in round_["recoveries"])
    for round_ in played:
        for line in round_["lines"]:
            row = found.setdefault(
                (line["semantics"], line["sink"]),
                {"by": by, "semantics": line["semantics"], "sink": line["sink"], "kills": 0, "events": 0, "lost": 0,
                 "repeated": 0, "faults": []},
            )  # fmt: skip
            row["kills"] += round_["kills"]
            for name in ("events", "lost", "repeated"):
                row[name] += line[name]
            row["faults"] += line["faults"]
    times = {f"recovery_p{share}": percentile(recoveries, share / 100) if recoveries else None for share in (50, 95)}
    order = [*Delivery]
    return sorted(
        ({**row, **times} for row in found.values()), key=lambda row: (order.index(row["semantics"]), row["sink"])
    )


def results(
    played: Sequence[Mapping[str, Any]], caught: Sequence[Mapping[str, Any]], two: Mapping[str, Any], command: str,
    more: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:  # fmt: skip
    """Build the stored results."""
    points: Counter[str] = Counter()
    for each in played:
        points.update(each["points"])
    return {
        "commit": machine.commit(),
        "command": command,
        "machine": machine.facts(),
        "rows": rows(played),
        "bugs": list(caught),
        "drivers": dict(two),
        "others": [*_torn_jobs(played), *more],
        "points": dict(sorted(points.items())),
        "rounds": [
            {name: each[name] for name in ("by", "seed", "kills", "seconds", "looks", "panes", "faults")}
            for each in played
        ],
    }


def _torn_jobs(played: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the Spark jobs whose checkpoints were torn."""
    fates: Counter[str] = Counter()
    for each in played:
        fates.update(each.get("torn", {}))
    if not fates:
        return []
    return [{"fault": TORN, "sink": JOBS, "rounds": fates.total(), "faults": [], "fates": dict(fates)}]


def main(
    kills: int, work: Path | None, sinks: Sequence[str], services: Mapping[str, Service], say: Say, *, spark: bool
) -> dict[str, Any]:  # fmt: skip
    """Run the whole campaign, or its missing parts; store results after each part."""
    home = work_folder(work)
    words = [f"--kills {kills}" if kills != KILLS else "", "" if spark else "--without-spark"]
    words += [] if tuple(sinks) == SINKS else [f"--sink {each}" for each in sinks]
    command = " ".join(["strandline prove delivery --campaign", *(word for word in words if word)])
    told: dict[str, Any] = {}

    def write(
        caught: Sequence[Mapping[str, Any]] = (), two: Mapping[str, Any] | None = None,
        more: Sequence[Mapping[str, Any]] = (),
    ) -> None:  # fmt: skip
        told.update(results(played, caught, two or {"rounds": 0, "faults": []}, command, more), asked=kills)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(told, indent=1) + "\n")

    played = process_rounds(kills, sinks, services, home, say)
    played += process_rounds(len(BESIDE) * kills // 10, BESIDE, services, home, say)
    write()
    two = drivers(sinks, services, home, say)
    more = others(services, home, say)
    caught = bugs(services, home, say)
    write(caught, two, more)
    if spark:
        for _ in rounds(jobs_of(kills), sinks, services, home, say, played):
            write(caught, two, more)
    return told
