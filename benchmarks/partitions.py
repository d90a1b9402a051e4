"""Measure batches over topics of many partitions, and a job with nothing to read.

A job reads a topic of 4, 100, 1,000 partitions and of 2,000 of which 4 have records; the same number of records in
each batch. Jobs alternate, each in its own process. Every record must be counted in one window, once. Then a job that
has read all there is runs on for a minute, and one record at a time wakes it.

python -m benchmarks.partitions [--quick] [--rounds N] [--only 4 1000] [--work PATH]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import strandline as sl
from benchmarks import machine, turns
from benchmarks.meter import look
from benchmarks.turns import Asked
from strandline.services import topics
from strandline.services.catalogue import service

if TYPE_CHECKING:
    from strandline.spark.delivery.deliver import Delivered
    from strandline.spark.job import Job

RESULTS: Final = Path(__file__).with_name("results") / "partitions.json"
ROWS: Final = 3_000
"""Records of a batch."""
WARM: Final = 4
"""Batches that do not count."""
BATCHES: Final = 20
ROUNDS: Final = 3
BASE: Final = "4"
FLOORS: Final = {"100": 1.5, "1000": 3.0}
"""Times the batch over 4 partitions that one over so many may take."""
IDLE: Final = "2000-idle"
MOST_IDLE: Final = 1.0
"""Seconds of a batch over 2,000 partitions of which four have records."""
NOTHING: Final = "nothing"
MOST_CORES: Final = 0.1
MOST_WAKE: Final = 0.1
"""Seconds until a batch starts that reads a record."""
QUIET_SECONDS: Final = 60
_FIRST: Final = 1_700_000_000_000
_PATIENCE: Final = 600
_COLUMNS: Final = "key long, value long, at long"


@dataclass(frozen=True, slots=True)
class Cell:
    """A topic: its partitions, and how many of them have records."""

    name: str
    partitions: int
    active: int


CELLS: Final = (Cell(BASE, 4, 4), Cell("100", 100, 100), Cell("1000", 1_000, 1_000), Cell(IDLE, 2_000, 4))


def main() -> int:
    """Measure; return 0 if every count is right and every floor is held."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small, and once; its figures say little")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", nargs="+", default=[], help=f"{', '.join(each.name for each in CELLS)}, {NOTHING}")
    parser.add_argument("--work", type=Path, help="where the broker is kept")
    parser.add_argument("--run", nargs=4, metavar=("CELL", "SERVERS", "BATCHES", "SECONDS"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        name, servers, batches, seconds = asked.run
        print(json.dumps(quiet(servers, float(seconds)) if name == NOTHING else read(name, servers, int(batches))))
        return 0
    rounds = asked.rounds or (1 if asked.quick else ROUNDS)
    batches, seconds = (6, 10) if asked.quick else (BATCHES, QUIET_SECONDS)
    names = [name for name in (*(each.name for each in CELLS), NOTHING) if not asked.only or name in asked.only]
    broker = service("kafka", turns.work_folder(Asked(work=asked.work)) / "partitions-broker", leashed=True)
    broker.start()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    try:
        for cell in CELLS:
            _fill(broker.address, cell, (WARM + BATCHES) * ROWS)
        for _ in range(rounds):
            for name in names:
                found[name].append(_in_own_process(name, broker.address, batches, seconds))
                print(name, found[name][-1], flush=True)
    finally:
        broker.stop()
    told = judged(found)
    for line in told["lines"]:
        print(line)
    if not asked.quick and not asked.only:
        command = " ".join(["python -m benchmarks.partitions", *sys.argv[1:]])
        kept = {"commit": machine.commit(), "command": command, "machine": machine.facts(), **told, "runs": found}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    return 0 if told["held"] else 1


def judged(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Compare the medians with their floors."""
    verdicts: list[tuple[str, float, float]] = []
    seconds = {name: median(run["seconds"] for run in runs) for name, runs in found.items() if name != NOTHING}
    for name, floor in FLOORS.items():
        if name in seconds and BASE in seconds:
            verdicts.append(
                (f"a batch over {name} partitions, of one over {BASE}", seconds[name] / seconds[BASE], floor)
            )
    if IDLE in seconds:
        verdicts.append(("seconds of a batch over 2,000 partitions, 4 of them with records", seconds[IDLE], MOST_IDLE))
    for field, what, most in (("cores", "cores of a job with nothing to read", MOST_CORES),
                              ("wake", "seconds until it reads a record", MOST_WAKE)):  # fmt: skip
        if found.get(NOTHING):
            verdicts.append((what, median(run[field] for run in found[NOTHING]), most))
    lines = [
        f"{'held  ' if value <= most else 'MISSED'} {what}: {value:.3g} (at most {most})"
        for what, value, most in verdicts
    ]
    return {"lines": lines, "held": all(value <= most for _, value, most in verdicts), "seconds": seconds}


def _in_own_process(name: str, servers: str, batches: int, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.partitions", "--run", name, servers, str(batches), str(seconds)]
    ran = subprocess.run(command, start_new_session=True, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2_000:])
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


def _fill(servers: str, cell: Cell, records: int) -> None:
    """Write the records of a topic, unless it is there."""
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra

    settings = {"retention.ms": "-1", "segment.bytes": str(2**20), "segment.index.bytes": "4096"}
    if not topics.create_topics(servers, topics.Topic(_topic(cell), cell.partitions, settings)):
        return
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number, value in enumerate(_values(records)):
        producer.produce(_topic(cell), value, partition=number % cell.active)
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(_PATIENCE):
        raise TimeoutError(f"the broker did not take {cell.name}")


def _topic(cell: Cell) -> str:
    return f"of-{cell.name}"


def _values(records: int) -> Iterator[bytes]:
    for number in range(records):
        yield json.dumps({"key": number % 100, "value": number % 7, "at": _FIRST + 10 * number}).encode()


def _run(cell: Cell, servers: str, home: str, batches: int | None, heard: Any) -> "Job":
    """Start a job over a topic that counts each second of event time by key."""
    limit = ROWS if batches is not None else 1_000_000
    source = sl.kafka(_topic(cell), servers=servers, value=sl.json(_COLUMNS), records_per_batch=limit)
    counts = (
        sl.read(source)
        .with_columns(moment="timestamp_millis(at)")
        .event_time("moment", sl.bounded(seconds=1).idle_after(minutes=10))
        .key_by("key")
        .window(sl.tumbling(seconds=10))
        .aggregate(total=sl.sum("value"), rows=sl.count())
    )
    job: Job = counts.write(sl.discard()).run(checkpoint=Path(home) / "job", listener=heard)
    return job


def read(name: str, servers: str, batches: int) -> dict[str, Any]:
    """Read a topic in small batches; return seconds and CPU seconds of a batch."""
    (cell,) = (each for each in CELLS if each.name == name)
    ends: list[tuple[float, float, int]] = []

    def heard(batch: "Delivered") -> None:
        if batch.output.counts.read:
            ends.append((time.time(), look(os.getsid(0)).cpu_seconds, batch.output.counts.read))

    with tempfile.TemporaryDirectory() as home:
        job = _run(cell, servers, home, batches, heard)
        _until(lambda: len(ends) >= WARM + batches)
        job.stop()
    if any(abs(rows - ROWS) > cell.active for _, _, rows in ends):
        raise ValueError(f"batches of {[rows for _, _, rows in ends]} records, not of {ROWS}")
    counted = ends[WARM - 1 : WARM + batches]
    return {"seconds": median(_steps([end[0] for end in counted])), "cpu": median(_steps([end[1] for end in counted]))}


def quiet(servers: str, seconds: float) -> dict[str, Any]:
    """Run a job that has read all there is; return the cores it takes, and how soon a batch reads a new record."""
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra

    cell, producer = CELLS[0], Producer({"bootstrap.servers": servers, "linger.ms": 0})
    with tempfile.TemporaryDirectory() as home:
        job, log = _run(cell, servers, home, None, None), Path(home) / "job" / "spark" / "offsets"
        _until(lambda: job.counts.read > 0)
        time.sleep(seconds / 2)
        before, since = look(os.getsid(0)).cpu_seconds, time.time()
        time.sleep(seconds)
        cores = (look(os.getsid(0)).cpu_seconds - before) / (time.time() - since)
        wakes = []
        for value in _values(10):
            time.sleep(5)
            known = {*log.iterdir()}
            producer.produce(_topic(cell), value, partition=0)
            producer.flush()
            sent = time.time()
            _until(lambda known=known: {*log.iterdir()} - known, every=0.002)
            wakes.append(time.time() - sent)
        job.stop()
    return {"cores": cores, "wake": median(wakes), "wakes": wakes}


def _until(done: Any, every: float = 0.05) -> None:
    deadline = time.time() + _PATIENCE
    while not done():
        if time.time() > deadline:
            raise TimeoutError(f"not within {_PATIENCE} seconds")
        time.sleep(every)


def _steps(moments: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(moments)]


if __name__ == "__main__":
    sys.exit(main())
