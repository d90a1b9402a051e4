"""Attribute a run's CPU time to thread purposes by sampling all threads a few times a second.

An ended thread keeps its last sampled value. Its later use is still in its process's total and is reported as that
process's rest. A process that lived between two samples is reported as unseen.
"""

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.meter import PROC, Looking, around, members
from strandline.spark.launch.fork_server import process_name

_TICKS: Final = os.sysconf("SC_CLK_TCK")

# Places in a stat line, counted from behind the name in parentheses, which may hold anything.
_TIMES, _BORN = slice(11, 13), 19

JVM: Final = {
    "JVM: compiling": ("C1 Compiler", "C2 Compiler", "Sweeper"),
    "JVM: collecting garbage": ("GC Thread", "G1 ", "VM Thread", "ParGC", "ConcGC"),
    "JVM: tasks": ("Executor task",),
    "JVM: stream execution": ("stream executio", "micro-batch", "streaming-"),
    "JVM: what the driver asks of it": ("Thread-",),
    "JVM: handing over to Python": ("stdout writer", "Python writer", "python-", "read stdout"),
    "JVM: state in the background": ("rocksdb", "state-store", "RocksDB"),
    "JVM: shuffle and blocks": ("shuffle-", "files-client", "block-manager", "map-output"),
    "JVM: scheduling": ("dag-scheduler", "task-result", "dispatcher", "spark-listener", "driver-heartbe", "heartbeat",
                        "task-scheduler", "broadcast-", "element-tracki", "context-cleaner", "Spark Context"),
}  # fmt: skip
"""Purposes of JVM threads by name prefix; the kernel knows the first fifteen characters."""
JVM_REST: Final = "JVM: everything else"
POLARS: Final = "workers: Polars"
"""Threads of Polars' pool; one per worker."""
WORKERS: Final = "workers: Python, Arrow and the crossing"
CLOCKS: Final = "workers: planning Python sources"
DRIVER: Final = "driver: gathering and sinks"
ORDER: Final = (*JVM, JVM_REST, POLARS, WORKERS, CLOCKS, DRIVER)

_SOURCES: Final = tuple(
    process_name(f"pyspark.sql.{each}")
    for each in ("worker.plan_data_source_read", "streaming.python_streaming_source_runner")
)
"""Names of Spark's processes for Python sources."""

Place = tuple[int, int, int]
"""Process id, thread id (0 for the whole process) and start time, since ids are reused."""


@dataclass(frozen=True, slots=True)
class Look:
    """CPU seconds used so far, by purpose."""

    moment: float
    seconds: Mapping[str, float]


@dataclass(slots=True)
class Ledger:
    """CPU time of all observed threads, including ended ones."""

    leader: int
    proc: Path = PROC
    seen: dict[Place, int] = field(default_factory=dict)
    """Ticks of each thread at its last sample."""
    sums: "Counter[str]" = field(default_factory=Counter)
    """Ticks by purpose. Threads are renamed with their work; each tick counts for the name at that time."""

    def look(self) -> Look:
        """Sample all processes of the session once."""
        moment = time.time()
        for process in members(self.leader, self.proc):
            self._process(self.proc / str(process), process)
        return Look(moment, {purpose: ticks / _TICKS for purpose, ticks in self.sums.items()})

    def _process(self, home: Path, process: int) -> None:
        kind = _kind(home, leads=process == self.leader)
        try:
            threads = [each for each in (home / "task").iterdir() if each.name.isdigit()]
        except OSError:
            return  # it has ended since it was listed
        known = 0
        for each in threads:
            found = _stat(each)
            if found is not None:
                name, ticks, born = found
                known += self._more((process, int(each.name), born), purpose_of(kind, name), ticks)
        whole = _stat(home)
        if whole is not None:
            _, ticks, born = whole
            self.sums[rest_of(kind)] += ticks - self.seen.get((process, 0, born), 0) - known
            self.seen[process, 0, born] = ticks

    def _more(self, place: Place, purpose: str, ticks: int) -> int:
        more = ticks - self.seen.get(place, 0)
        self.seen[place] = ticks
        self.sums[purpose] += more
        return more


def _kind(home: Path, *, leads: bool) -> str:
    if leads:
        return "driver"
    try:
        command = (home / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        name = (home / "comm").read_text().strip()
    except OSError:
        command = name = ""
    if command.partition(" ")[0].endswith("java"):
        return "jvm"
    return "clock" if name in _SOURCES else "worker"


def _stat(home: Path) -> tuple[str, int, int] | None:
    """Return name, CPU ticks and start time of a thread; None if it has ended."""
    try:
        text = (home / "stat").read_text(errors="replace")
    except OSError:
        return None
    before, _, behind = text.rpartition(")")
    fields = behind.split()
    return before.partition("(")[2], sum(map(int, fields[_TIMES])), int(fields[_BORN])


def purpose_of(kind: str, thread: str) -> str:
    """Return the purpose of a thread."""
    if kind == "jvm":
        return next((purpose for purpose, names in JVM.items() if thread.startswith(names)), JVM_REST)
    if kind == "worker" and thread.startswith(("polars", "rayon")):
        return POLARS
    return rest_of(kind)


def rest_of(kind: str) -> str:
    """Return a process's CPU time that no observed thread accounts for."""
    return {"jvm": JVM_REST, "worker": WORKERS, "clock": CLOCKS}.get(kind, DRIVER)


def between(looks: Sequence[Look], since: float, until: float) -> dict[str, float]:
    """Return CPU seconds between two moments, by purpose."""
    before, after = _at(looks, since), _at(looks, until)
    spent = {purpose: after.get(purpose, 0.0) - before.get(purpose, 0.0) for purpose in ORDER}
    return {purpose: seconds for purpose, seconds in spent.items() if seconds > 0}


def _at(looks: Sequence[Look], moment: float) -> dict[str, float]:
    """Interpolate between the samples around a moment."""
    one, other, share = around(looks, moment)
    return {
        purpose: one.seconds.get(purpose, 0.0) + share * (seconds - one.seconds.get(purpose, 0.0))
        for purpose, seconds in other.seconds.items()
    }


def watch(leader: int) -> Looking[Look]:
    """Sample a session's threads five times a second."""
    return Looking(Ledger(leader).look, 0.2)
