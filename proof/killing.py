"""Real jobs killed again and again, then left to finish; and what the readers of their sinks found."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from proof import inbox, traces
from proof.jobs import Real
from proof.oracle import Verdict, judged
from proof.schedule import Kill, Kind
from proof.stores import Asked
from strandline.plan.endpoints import Delivery
from strandline.services.service import Service
from strandline.spark.crash import VARIABLE

FILES: Final = 3
"""So many new files there are for each life."""
PATIENCE: Final = 120
"""Seconds in which a job must come to where it is to die, or to its end."""
ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Line:
    """What became of one delivery to one sink."""

    semantics: str
    sink: str
    events: int
    lost: int
    repeated: int
    faults: tuple[str, ...]


@dataclass(slots=True)
class Round:
    """A job's many lives, told."""

    seed: int
    kills: int = 0
    points: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    looks: int = 0
    panes: int = 0
    seconds: float = 0

    def plain(self) -> dict[str, Any]:
        return {"by": "job on Spark", **asdict(self), "points": dict(self.points)}


class Lives:
    """A job that is started, killed and started again."""

    def __init__(self, real: Real, seed: int, services: Mapping[str, Service]) -> None:
        self.real, self.seed, self._services = real, seed, services
        self.files = 0
        self.real.folder.mkdir(parents=True, exist_ok=True)

    def feed(self, files: int = FILES) -> None:
        for _ in range(files):
            inbox.put(self.real.inbox, self.seed, self.files)
            self.files += 1

    def killed(self, kill: Kill) -> bool:
        """One life; True if it was killed, and did not end by itself."""
        self.feed()
        with self._started(self.real, kill.said) as process:
            match kill.kind:
                case Kind.POINT:
                    pass
                case Kind.RANDOM:
                    time.sleep(4 + 2 * kill.seconds)
                    _end(process)
                case Kind.WORKER:
                    self._wait_for_batches(process, 1)
                    _kill_worker(process.pid)
                    self._wait_for_batches(process, 1)
                    _end(process)
                case Kind.SERVICE:
                    self._wait_for_batches(process, 1)
                    service = Random(kill.seconds).choice(sorted(self._services))
                    self._services[service].kill()
                    time.sleep(0.5)
                    self._services[service].start()
                    self._wait_for_batches(process, 1)
                    _end(process)
            return self._waited(process) == -signal.SIGKILL

    def finish(self) -> int:
        """The last life: reads what is there, and ends."""
        with self._started(replace(self.real, finish=True), "") as process:
            return self._waited(process)

    def delivered(self) -> list[dict[str, Any]]:
        if not self.real.said.exists():
            return []
        lines = self.real.said.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    @contextmanager
    def _started(self, real: Real, said: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A process and all it starts, which does not outlive whoever started it."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "POLARS_MAX_THREADS": "1"}
        if said:
            environment[VARIABLE] = said
        with (self.real.folder / "errors").open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "proof.jobs", json.dumps(asdict(real))],
                cwd=ROOT, stdout=errors, stderr=errors, start_new_session=True, env=environment,
            )  # fmt: skip
        try:
            yield process
        finally:
            _end(process)
            process.wait()

    def _wait_for_batches(self, process: "subprocess.Popen[bytes]", more: int) -> None:
        wanted, until = len(self.delivered()) + more, time.monotonic() + PATIENCE
        while len(self.delivered()) < wanted and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)

    def _waited(self, process: "subprocess.Popen[bytes]") -> int:
        """How it ended, once everyone it started is gone; one that does not end in time is killed."""
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            _end(process)
            code = process.wait()
        _end(process)
        while members(process.pid):
            time.sleep(0.02)
        return code


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def members(group: int) -> list[int]:
    """The living processes of a process group."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                state, _, member_of, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(member_of) == group and state not in "ZX":
                found.append(int(process.name))
    return found


def _kill_worker(group: int) -> None:
    """The youngest Python worker: one whose parent is the daemon that forks them."""
    daemons = [pid for pid in members(group) if b"pyspark.daemon" in _command(pid)]
    workers = [pid for pid in daemons if _parent(pid) in daemons]
    if workers:
        with suppress(ProcessLookupError):
            os.kill(max(workers), signal.SIGKILL)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Watcher:
    """Reads the tables that are delivered to exactly once, all the while; what it saw of a batch must be all of it."""

    def __init__(self, tables: Sequence[Asked]) -> None:
        self._tables = [each for each in tables if each.delivery is Delivery.EXACTLY_ONCE]
        self._seen: dict[int, dict[int, set[int]]] = {number: {} for number in range(len(self._tables))}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.faults: list[str] = []
        self.looks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        for number, table in enumerate(self._tables):
            final = Counter(batch for _, batch, _ in table.rows())
            for batch, sizes in self._seen[number].items():
                if sizes != {final[batch]}:
                    self.faults.append(f"half a batch was seen in {table.store.name}: batch {batch}, {sizes}")

    def _watch(self) -> None:
        while not self._stopped.wait(0.3):
            for number, table in enumerate(self._tables):
                try:
                    rows = table.rows()
                except Exception:  # noqa: BLE001, S112 - services are killed on purpose, each with an error of its own
                    continue
                self.looks += 1
                if len(rows) != len({event for _, _, event in rows}):
                    self.faults.append(f"a repeat was seen in {table.store.name}")
                for batch, size in Counter(batch for _, batch, _ in rows).items():
                    self._seen[number].setdefault(batch, set()).add(size)


def play(
    real: Real, seed: int, kills: Sequence[Kill], services: Mapping[str, Service], tell: Callable[[str], None]
) -> Round:
    """All of its lives, then the verdict on every table."""
    start, told = time.monotonic(), Round(seed)
    lives = Lives(real, seed, services)
    with Watcher(real.tables) as watcher:
        died: float | None = None
        for number, kill in enumerate(kills):
            before = len(lives.delivered())
            was_killed = lives.killed(kill)
            moment, new = time.time(), lives.delivered()[before:]
            if died is not None and new:
                told.recoveries.append(round(new[0]["at"] - died, 2))
            died = moment
            if not was_killed:
                told.faults.append(f"kill {number + 1}, {kill.point}: the job ended by itself")
                break
            told.kills += 1
            told.points[kill.point] += 1
            tell(f"kill {number + 1} of {len(kills)}: {kill.said or kill.kind}, {len(new)} batches delivered")
        else:
            code = lives.finish()
            if code:
                told.faults.append(f"the last run ended with {code}")
    told.faults += dict.fromkeys(watcher.faults)
    told.looks = watcher.looks
    _judge(told, real, lives)
    told.seconds = round(time.monotonic() - start, 1)
    return told


def _judge(told: Round, real: Real, lives: Lives) -> None:
    log = {each.event: each for file in range(lives.files) for each in inbox.events_of(lives.seed, file)}
    batches: dict[int, list[inbox.Event]] = {}
    for table in real.tables:
        verdict: Verdict = judged(table, log, None, lambda _: "panes")
        faults = verdict.faults
        told.lines.append(
            Line(table.delivery, table.store.name, verdict.events, verdict.lost, verdict.repeated, faults)
        )
        if table.delivery is Delivery.EXACTLY_ONCE and not batches:
            for _, batch, event in table.rows():
                batches.setdefault(batch, []).append(log[event])
    if batches and not told.faults and not any(line.faults for line in told.lines):
        found = traces.faults(real, batches, lives.files)
        told.faults += found
        told.panes = traces.told(real)[0].total()
