"""Kill real jobs repeatedly, let them finish, and check what readers of their sinks saw."""

import json
import os
import shutil
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
from proof.torn import Fate, repaired, tear
from strandline.plan.endpoints import Delivery
from strandline.ports.crash_points import VARIABLE
from strandline.services.service import Service

FILES: Final = 3
"""New files per life."""
PATIENCE: Final = 300
"""Time limit in seconds for a job to reach its kill point or end."""
GONE: Final = 60
"""Time limit in seconds for killed processes to disappear."""
ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Line:
    """Result of one delivery to one sink."""

    semantics: str
    sink: str
    events: int
    lost: int
    repeated: int
    faults: tuple[str, ...]


class Stuck(Exception):
    """Raised when a process does not reach a point in time: a fault, not a reason to wait."""


@dataclass(slots=True)
class Round:
    """Record of a job's lives."""

    seed: int
    kills: int = 0
    points: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    looks: int = 0
    panes: int = 0
    seconds: float = 0
    torn: Counter[str] = field(default_factory=Counter)
    """Results of torn checkpoints."""

    def plain(self) -> dict[str, Any]:
        return {"by": "job on Spark", **asdict(self), "points": dict(self.points), "torn": dict(self.torn)}


class Lives:
    """A job that is started, killed and restarted."""

    def __init__(self, real: Real, seed: int, services: Mapping[str, Service]) -> None:
        self.real, self.seed, self._services = real, seed, services
        self.files = 0
        self.real.folder.mkdir(parents=True, exist_ok=True)

    def feed(self, files: int = FILES) -> None:
        for _ in range(files):
            inbox.put(self.real.inbox, self.seed, self.files)
            self.files += 1

    def killed(self, kill: Kill) -> bool:
        """Run one life; return True if it was killed rather than ended. One that lives too long is stuck."""
        self.feed()
        with self.started(self.real, kill.said) as process:
            match kill.kind:
                case Kind.POINT:
                    pass
                case Kind.RANDOM | Kind.TORN:
                    self._wait_for_moment(process, kill.seconds)
                    _end(process)
                case Kind.WORKER:
                    self._wait_for_batches(process, 1)
                    if process.poll() is None and not kill_worker(process.pid):
                        raise Stuck("the job has no Python worker that could be killed")
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
            return _ended(process, kill.said or kill.kind) == -signal.SIGKILL

    def torn(self, seed: float) -> tuple[str, Fate]:
        """Damage and repair a checkpoint file; return which one and the result."""
        home, backup = self.real.checkpoint, self.real.folder / "backup"
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(home, backup)
        what = tear(home, Random(seed))
        return what, repaired(home, backup)

    def finish(self) -> int:
        """Run the last life, which reads the available data and ends."""
        with self.started(replace(self.real, finish=True), "") as process:
            return _ended(process, "its end")

    def delivered(self) -> list[dict[str, Any]]:
        if not self.real.said.exists():
            return []
        lines = self.real.said.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    @contextmanager
    def started(self, real: Real, said: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a process that does not outlive its parent."""
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
            gone(process)

    def _wait_for_moment(self, process: "subprocess.Popen[bytes]", seconds: float) -> None:
        """Wait for the kill moment: a quarter during the start, the others after the first batch."""
        if seconds < 1:
            time.sleep(6 * seconds)
        else:
            self._wait_for_batches(process, 1)
            time.sleep(seconds - 1)

    def _wait_for_batches(self, process: "subprocess.Popen[bytes]", more: int) -> None:
        wanted, until = len(self.delivered()) + more, time.monotonic() + PATIENCE
        while len(self.delivered()) < wanted and process.poll() is None:
            if time.monotonic() > until:
                raise Stuck(f"the job delivered no batch in {PATIENCE} s")
            time.sleep(0.05)


def _ended(process: "subprocess.Popen[bytes]", where: str) -> int:
    """Wait until all child processes are gone and return how the process ended."""
    try:
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise Stuck(f"the job did not come to {where} in {PATIENCE} s") from None
    _end(process)
    gone(process)
    return code


def gone(process: "subprocess.Popen[bytes]", within: float = GONE) -> None:
    """Wait until all processes of a killed group are gone; two drivers at once are another proof."""
    until = time.monotonic() + within
    while process.poll() is None or members(process.pid):
        if time.monotonic() > until:
            raise Stuck(f"{members(process.pid)} of the group {process.pid} live on, {within} s after they were killed")
        time.sleep(0.02)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the group and the session's other groups, such as Spark's Python workers."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in members(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def members(leader: int) -> list[int]:
    """Return the live processes of a group and of the session it leads."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                state, _, group, session, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if leader in (int(group), int(session)) and state not in "ZX":
                found.append(int(process.name))
    return found


def kill_worker(leader: int) -> bool:
    """Kill the youngest Python worker, a child of the daemon; return False if there is none."""
    daemons = [pid for pid in members(leader) if _name(pid) == "pyspark.daemon"]
    workers = [pid for pid in daemons if _parent(pid) in daemons]
    if workers:
        with suppress(ProcessLookupError):
            os.kill(max(workers), signal.SIGKILL)
    return bool(workers)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Watcher:
    """Read exactly-once tables continuously; each batch seen must be complete."""

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
        self._thread.join(GONE)
        if self._thread.is_alive():
            self.faults.append(f"a table could not be read in {GONE} s")
            return
        for number, table in enumerate(self._tables):
            final = Counter(batch for _, batch, _ in table.rows())
            for batch, sizes in self._seen[number].items():
                if sizes != {final[batch]}:
                    self.faults.append(f"half a batch was seen in {table.store.name}: batch {batch}, {sizes}")

    def _watch(self) -> None:
        took = 0.0
        while not self._stopped.wait(max(0.3, 9 * took)):  # the job is to have most of the machine
            begun = time.monotonic()
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
            took = time.monotonic() - begun


def play(
    real: Real, seed: int, kills: Sequence[Kill], services: Mapping[str, Service], tell: Callable[[str], None]
) -> Round:
    """Run all lives, then check each table."""
    start, told = time.monotonic(), Round(seed)
    lives = Lives(real, seed, services)
    with Watcher(real.tables) as watcher:
        try:
            _live(told, lives, kills, tell)
        except Stuck as problem:
            told.faults.append(f"after {told.kills} kills: {problem}")
    told.faults += dict.fromkeys(watcher.faults)
    told.looks = watcher.looks
    _judge(told, real, lives)
    told.seconds = round(time.monotonic() - start, 1)
    return told


def _live(told: Round, lives: Lives, kills: Sequence[Kill], tell: Callable[[str], None]) -> None:
    """Kill the job repeatedly, then let it finish; each next life reports its recovery time."""
    died: float | None = None
    for number, kill in enumerate(kills):
        before, begun = len(lives.delivered()), time.monotonic()
        was_killed = lives.killed(kill)
        moment, new = time.time(), lives.delivered()[before:]
        _recovered(told, died, new)
        died = moment
        if not was_killed:
            told.faults.append(f"kill {number + 1}, {kill.point}: the job ended by itself")
            return
        told.kills += 1
        told.points[kill.point] += 1
        if kill.kind is Kind.TORN and lives.real.checkpoint.exists():
            what, fate = lives.torn(kill.seconds)
            told.torn[fate] += 1
            tell(f"{what}: {fate}")
        tell(
            f"kill {number + 1} of {len(kills)}: {kill.said or kill.kind}, {len(new)} batches delivered, "
            f"{time.monotonic() - begun:.1f} s"
        )
    before = len(lives.delivered())
    code = lives.finish()
    _recovered(told, died, lives.delivered()[before:])
    if code:
        told.faults.append(f"the last run ended with {code}")


def _recovered(told: Round, died: float | None, new: Sequence[Mapping[str, Any]]) -> None:
    if died is not None and new:
        told.recoveries.append(round(new[0]["at"] - died, 2))


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
