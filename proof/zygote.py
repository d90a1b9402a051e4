"""Fork real processes from one with all imports loaded; each is really killed and lives a tenth of a second.

The fork server runs no work itself: libraries start threads at first use, and a fork would lack them.

    python -m proof.zygote     reads a life as a JSON line, runs it, answers how it ended
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from unittest.mock import patch

from proof.bugs import BUGS
from proof.standin import PER_BATCH, Job
from proof.stores import Asked, store_of
from strandline.errors import Fenced, SinkUnavailable, StateError, StrandlineError
from strandline.plan.endpoints import Delivery
from strandline.ports import crash_points

FENCED, REFUSED, AWAY, FAILED, BROKEN, HUNG = 3, 4, 5, 6, 7, 8
_ALONE: Final = {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_PATH: Final = os.pathsep.join(sys.path)
PATIENCE: Final = 60
"""Time limit in seconds for the file that signals the kill."""
LONGEST: Final = 300
"""Time limit of a life in seconds."""
ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a job's process: its work and its end."""

    home: str
    store: Mapping[str, str]
    events: int
    deliveries: tuple[str, ...] = tuple(Delivery)
    per_batch: int = PER_BATCH
    crash: str | None = None
    """Point and pass number."""
    stops: bool = False
    """Pause at the point instead of dying."""
    after: float | None = None
    """Kill after this many seconds."""
    kept: bool = False
    """Keep copies of small files and check the folder before the start."""
    file_limit: int | None = None
    """Maximum file size in bytes, simulating a full disk."""
    bug: str | None = None

    @property
    def job(self) -> Job:
        store = store_of(self.store)
        deliveries = [Delivery(each) for each in self.deliveries]
        tables = tuple(Asked(store, each, each.value) for each in deliveries)
        return Job(Path(self.home), tables, per_batch=self.per_batch, kept=self.kept)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a life ended: an exit code, a negative signal number, or paused."""

    code: int
    asleep: bool
    pid: int
    seconds: float

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Zygote:
    """Handle of the fork server."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "proof.zygote"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log, text=True, bufsize=1, env={**os.environ, **_ALONE, "PYTHONPATH": _PATH},
        )  # fmt: skip

    def live(self, life: Life) -> Ended:
        return self._ask(asdict(life))

    def wake(self, ended: Ended, once: Path | None = None) -> Ended:
        """Resume a paused life to its end, or kill it once a file exists."""
        return self._ask({"wake": ended.pid, "once": None if once is None else str(once)})

    def _ask(self, told: Mapping[str, Any]) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the zygote is gone: see {self._log.name}")
        return Ended(**json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(PATIENCE)
        self._log.close()


def _lived(told: Mapping[str, Any]) -> Ended:
    """Fork and wait for the end; the child's process group is killed as a whole."""
    life, start = Life(**told), time.monotonic()
    child = os.fork()
    if not child:
        os.setsid()
        try:
            os._exit(_live(life))
        except BaseException:  # noqa: BLE001 - nothing of the parent's may run in the child
            traceback.print_exc()
            os._exit(BROKEN)
    if life.after is not None:
        time.sleep(life.after)
        _kill(child)
    return _waited(child, start)


def _woken(child: int, once: str | None) -> Ended:
    start = time.monotonic()
    os.kill(child, signal.SIGCONT)
    if once is not None:
        _await(Path(once), child)
        _kill(child)
    return _waited(child, start)


def _kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def _await(file: Path, child: int) -> None:
    """Wait until the file exists, the child has ended, or the time is over."""
    until = time.monotonic() + PATIENCE
    while not file.exists() and time.monotonic() < until:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.01)


def _waited(child: int, start: float) -> Ended:
    """Wait for the end; kill a child that lives too long and report it as hanging."""
    until = start + LONGEST
    while True:
        pid, status = os.waitpid(child, os.WUNTRACED | os.WNOHANG)
        seconds = time.monotonic() - start
        if pid and os.WIFSTOPPED(status):
            return Ended(0, True, child, seconds)
        if pid:
            return Ended(os.waitstatus_to_exitcode(status), False, child, seconds)
        if time.monotonic() > until:
            _kill(child)
            os.waitpid(child, 0)
            return Ended(HUNG, False, child, seconds)
        time.sleep(0.002)


def _live(life: Life) -> int:
    if life.crash is not None:
        os.environ[crash_points.VARIABLE] = life.crash
    if life.file_limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (life.file_limit, resource.RLIM_INFINITY))
    with contextlib.ExitStack() as stack:
        if life.stops:
            stack.enter_context(patch("os.killpg", lambda *_: os.kill(os.getpid(), signal.SIGSTOP)))
        if life.bug is not None:
            stack.enter_context(BUGS[life.bug].made())
        return _code_of(life)


def _code_of(life: Life) -> int:
    try:
        life.job.run(life.events)
    except Fenced:
        return FENCED
    except StateError as problem:
        sys.stderr.write(f"{problem}\n")
        return REFUSED
    except SinkUnavailable:
        return AWAY
    except StrandlineError as problem:
        sys.stderr.write(f"{problem}: {problem.detail}\n")
        return FAILED
    except OSError as problem:
        sys.stderr.write(f"{problem}\n")
        return FAILED
    return 0


def _load() -> None:
    """Import what each life would import itself; service clients are optional."""
    for name in (
        "pandas", "pyarrow.compute", "polars._utils.parquet", "deltalake", "duckdb", "psycopg", "confluent_kafka.admin",
    ):  # fmt: skip
        with contextlib.suppress(ImportError):
            import_module(name)


def main() -> None:
    _load()
    for line in sys.stdin:
        told = json.loads(line)
        ended = _woken(told["wake"], told["once"]) if "wake" in told else _lived(told)
        sys.stdout.write(json.dumps(asdict(ended)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
