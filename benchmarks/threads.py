"""Who in a run uses CPU time: every thread of its processes, by what it is there for, looked at a few times a second.

A thread that has ended keeps what it was last seen with. What it used after that is still in its process's own count,
and so is told as that process's rest; a process that lived between two looks is in nobody's, and told as unseen.
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
"""What threads of the JVM are there for, by how their names begin; the kernel knows the first fifteen letters."""
JVM_REST: Final = "JVM: everything else"
POLARS: Final = "workers: Polars"
"""Threads of Polars' own pool; one in each worker."""
WORKERS: Final = "workers: Python, Arrow and the crossing"
CLOCKS: Final = "workers: planning Python sources"
DRIVER: Final = "driver: gathering and sinks"
ORDER: Final = (*JVM, JVM_REST, POLARS, WORKERS, CLOCKS, DRIVER)

_SOURCES: Final = tuple(
    process_name(f"pyspark.sql.{each}")
    for each in ("worker.plan_data_source_read", "streaming.python_streaming_source_runner")
)
"""How processes are called that Spark asks about a Python source."""

Place = tuple[int, int, int]
"""A process, a thread of it (0 for all of the process), and when it was born: numbers are used again."""


@dataclass(frozen=True, slots=True)
class Look:
    """CPU seconds used so far, by what for."""

    moment: float
    seconds: Mapping[str, float]


@dataclass(slots=True)
class Ledger:
    """What every thread has used as far as it was seen, those that have ended too."""

    leader: int
    proc: Path = PROC
    seen: dict[Place, int] = field(default_factory=dict)
    """Ticks of everyone when it was last looked at."""
    sums: "Counter[str]" = field(default_factory=Counter)
    """Ticks by purpose. Threads are renamed as they get other work: each tick counts for the name it was seen under."""

    def look(self) -> Look:
        """Looks at everyone of the session once more."""
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
    """A name, user and system ticks, and when it was born; None if it has ended."""
    try:
        text = (home / "stat").read_text(errors="replace")
    except OSError:
        return None
    before, _, behind = text.rpartition(")")
    fields = behind.split()
    return before.partition("(")[2], sum(map(int, fields[_TIMES])), int(fields[_BORN])


def purpose_of(kind: str, thread: str) -> str:
    """What a thread of a kind of process is there for."""
    if kind == "jvm":
        return next((purpose for purpose, names in JVM.items() if thread.startswith(names)), JVM_REST)
    if kind == "worker" and thread.startswith(("polars", "rayon")):
        return POLARS
    return rest_of(kind)


def rest_of(kind: str) -> str:
    """What a process has used that none of its threads is known to have."""
    return {"jvm": JVM_REST, "worker": WORKERS, "clock": CLOCKS}.get(kind, DRIVER)


def between(looks: Sequence[Look], since: float, until: float) -> dict[str, float]:
    """What was used between two moments, by what for."""
    before, after = _at(looks, since), _at(looks, until)
    spent = {purpose: after.get(purpose, 0.0) - before.get(purpose, 0.0) for purpose in ORDER}
    return {purpose: seconds for purpose, seconds in spent.items() if seconds > 0}


def _at(looks: Sequence[Look], moment: float) -> dict[str, float]:
    """On the straight line between the looks around a moment."""
    one, other, share = around(looks, moment)
    return {
        purpose: one.seconds.get(purpose, 0.0) + share * (seconds - one.seconds.get(purpose, 0.0))
        for purpose, seconds in other.seconds.items()
    }


def watch(leader: int) -> Looking[Look]:
    """Looks at a session five times a second."""
    return Looking(Ledger(leader).look, 0.2)
