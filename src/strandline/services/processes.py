"""Processes of our own: started apart from us, known by pid and birth, ended by signal.

A pid alone is not an identity: the system gives it to someone else once its process is gone. The birth (which boot of
the machine, and when in it) tells the two apart, so that no signal ever reaches a stranger.
"""

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
_LOOK_EVERY_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """A process, and when it was born."""

    pid: int
    birth: str

    @property
    def is_alive(self) -> bool:
        if birth_of(self.pid) == self.birth:
            return True
        # Not before we looked: its remains keep the pid taken, and PostgreSQL does not start while one it noted is.
        _reap(self.pid)
        return False

    def send(self, what: signal.Signals) -> None:
        """Sends a signal if the process is still the one we started."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, what)

    def is_gone_within(self, seconds: float) -> bool:
        """Waits for its end."""
        give_up = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() > give_up:
                return False
            time.sleep(_LOOK_EVERY_SECONDS)
        return True

    def children(self) -> tuple["Process", ...]:
        """The processes it started, where the system tells."""
        try:
            pids = (_PROC / f"{self.pid}/task/{self.pid}/children").read_text(encoding="ascii").split()
        except OSError:
            return ()
        return tuple(Process(int(pid), birth) for pid in pids if (birth := birth_of(int(pid))) is not None)


def spawn(command: Sequence[str], log: Path, environ: Mapping[str, str]) -> Process:
    """Starts a program in a session of its own: it outlives us and its terminal; what it says goes to the log."""
    appended = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        list(command),
        dict(environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), appended, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    # Until we ask for how it ended, the pid stays taken even if the program is already gone.
    return Process(pid, birth_of(pid) or "")


def birth_of(pid: int) -> str | None:
    """Which boot, and when in it; None when there is no such process or only its remains are left."""
    try:
        # The name in brackets may hold anything; what follows the last bracket is plain.
        fields = (_PROC / f"{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None if _PROC.joinpath("self").exists() else _birth_by_ps(pid)
    return None if fields[0] in ("Z", "X") and not _has_threads(pid) else f"{boot} {fields[19]}"


def _has_threads(pid: int) -> bool:
    # The first thread of a killed process may be gone while others still hold its files and its ports.
    try:
        return sum(1 for _ in (_PROC / f"{pid}/task").iterdir()) > 1
    except OSError:
        return False


def _birth_by_ps(pid: int) -> str | None:
    command = ["/bin/ps", "-o", "state=,lstart=", "-p", str(pid)]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split(maxsplit=1)
    return None if len(told) < 2 or told[0].startswith("Z") else told[1].strip()


def _reap(pid: int) -> None:
    # Only whoever started a process can clear its remains away; for all others this does nothing.
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
