"""Start and signal processes that run apart from ours, identified by pid and start time.

A pid alone is not an identity: the system reuses it once its process is gone. The start time (boot and time within it)
tells the two apart, so that no signal reaches another process.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """A process and its start time."""

    pid: int
    birth: str

    @property
    def is_alive(self) -> bool:
        if birth_of(self.pid) == self.birth:
            return True
        # Not earlier: an unreaped process keeps its pid taken, and PostgreSQL does not start while a pid that it
        # recorded is.
        _reap(self.pid)
        return False

    def send(self, what: signal.Signals) -> None:
        """Send a signal if the process is still the one that was started."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, what)

    def is_gone_within(self, seconds: float) -> bool:
        """Wait for the process to end; return whether it did."""
        give_up = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() > give_up:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def children(self) -> tuple["Process", ...]:
        """Return the processes that any of its threads started, where the system lists them."""
        pids: list[str] = []
        for thread in (_PROC / f"{self.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread has ended
                pids += thread.read_text(encoding="ascii").split()
        return tuple(Process(int(pid), birth) for pid in pids if (birth := birth_of(int(pid))) is not None)


def spawn(command: Sequence[str], log: Path, environ: Mapping[str, str]) -> Process:
    """Start a program in a session of its own, so that it outlives this process and its terminal; its output goes to
    the log.

    It gets no other descriptor: one of the caller's would keep a pipe, a lock or a port of the caller open for as long
    as it runs.
    """
    appended = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        list(command),
        dict(environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), appended, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, each) for each in _inheritable()),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT],
    )
    # Until it is reaped, the pid stays taken even if the program has ended.
    return Process(pid, birth_of(pid) or "")


def _inheritable() -> list[int]:
    """Return the descriptors, other than the standard ones, that a program started now would get."""
    found = []
    with suppress(OSError):
        for name in Path("/dev/fd").iterdir():
            with suppress(OSError, ValueError):  # that of the folder itself is closed by now
                if int(name.name) > 2 and os.get_inheritable(int(name.name)):
                    found.append(int(name.name))
    return found


def birth_of(pid: int) -> str | None:
    """The boot and the start time within it; None if there is no such process, or only a zombie."""
    try:
        # The name in brackets may contain anything; the fields follow the last bracket.
        fields = (_PROC / f"{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None if _PROC.joinpath("self").exists() else _birth_by_ps(pid)
    return None if fields[0] in ("Z", "X") and not _has_threads(pid) else f"{boot} {fields[19]}"


def _has_threads(pid: int) -> bool:
    # The main thread of a killed process may be gone while others still hold its files and ports.
    try:
        return sum(1 for _ in (_PROC / f"{pid}/task").iterdir()) > 1
    except OSError:
        return False


def _birth_by_ps(pid: int) -> str | None:
    command = ["/bin/ps", "-o", "state=,lstart=", "-p", str(pid)]
    fields = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split(maxsplit=1)
    return None if len(fields) < 2 or fields[0].startswith("Z") else fields[1].strip()


def _reap(pid: int) -> None:
    # Only the parent can reap a process; for any other process this does nothing.
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
