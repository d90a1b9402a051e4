"""Show one line for each step of a program: what runs, for how long, and how it ended.

On a terminal the line is repainted in place. Elsewhere it is printed again every ten seconds, so that a log shows
progress too. Standard library only: prepare.py uses it before anything is installed.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import IO, Self, TextIO, cast

from offspring import MARK, Process, offspring

_REPAINT_SECONDS = 0.2
_PRINT_FIRST_SECONDS = 1.0
_PRINT_SECONDS = 10.0
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and the output of a command."""

    code: int
    output: str
    left: tuple[str, ...] = ()
    """Command lines of processes that it started and did not stop. They have been killed."""
    fell_silent: bool = False
    """True when it was killed because it printed nothing for too long."""


class LineReader(threading.Thread):
    """Reads the lines of a stream into a queue, in a thread of its own. None marks the end."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.lines: SimpleQueue[str | None] = SimpleQueue()
        self.start()

    def run(self) -> None:
        with self._stream:
            for line in self._stream:
                self.lines.put(line)
        self.lines.put(None)


class Step:
    """The progress line of one `with` block. The step fails by an exception, or when `failed` is set."""

    def __init__(self, title: str, out: TextIO | None = None) -> None:
        self.title = title
        self.seconds = 0.0
        self.failed = False
        self._note = ""
        self._out = sys.stderr if out is None else out
        self.at = ""
        self._on_terminal = self._out.isatty() and os.environ.get("TERM") != "dumb"
        self._ended = threading.Event()
        self._painter = threading.Thread(target=self._paint, daemon=True)

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._painter.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._painter.join()
        self.seconds = time.monotonic() - self._started
        self.failed = self.failed or kind is not None
        word = "FAIL" if self.failed else "ok"
        color = "31" if word == "FAIL" else "32"
        mark = f"\r\x1b[K\x1b[{color}m{word:<4}\x1b[0m" if self._on_terminal else f"{word:<4}"
        self._write(f"{mark}  {self.title}  {self.seconds:.1f} s{self._note}\n")

    def doing(self, what: str) -> None:
        """Show the current action behind the title."""
        self.at = what

    def note(self, text: str) -> None:
        """Add a remark to the line that is printed when the step ends."""
        self._note = f"  {text}"

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] = lambda _: None,
        silence: float | None = None,
    ) -> Ran:
        """Run a command and pass each line of its output to `on_line`. Kill every process that it leaves behind.

        If it prints nothing for `silence` seconds, it gets SIGUSR1 (Python processes then dump their stacks) and is
        killed.
        """
        mark = uuid.uuid4().hex
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**(os.environ if environ is None else environ), MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        lines = LineReader(cast("IO[str]", process.stdout)).lines
        try:
            return self._listen(process, lines, mark, on_line, silence)
        except BaseException:
            # An interrupt may reach this process only; the command must not run on.
            process.terminate()
            process.wait()
            raise

    def _listen(
        self,
        process: "subprocess.Popen[str]",
        lines: "SimpleQueue[str | None]",
        mark: str,
        on_line: Callable[[str], None],
        silence: float | None,
    ) -> Ran:
        output: list[str] = []
        left: tuple[str, ...] = ()
        last_output = time.monotonic()
        ended: float | None = None
        fell_silent = False
        while True:
            try:
                line = lines.get(timeout=_POLL_SECONDS)
            except Empty:
                now = time.monotonic()
                if ended is None and process.poll() is not None:
                    ended, left = now, _kill(offspring(mark))
                elif ended is None and silence is not None and now - last_output > silence:
                    fell_silent = True
                    output.append(f"No output for {silence:.0f} s: its stacks are dumped, and it is killed.\n")
                    _dump_stacks_and_kill(process, mark)
                elif ended is not None and now - ended > _GRACE_SECONDS:
                    break  # a process without the mark still holds the pipe
            else:
                if line is None:
                    break
                last_output = time.monotonic()
                output.append(line)
                on_line(line.rstrip())
        process.wait()
        return Ran(process.returncode, "".join(output), left or _kill(offspring(mark)), fell_silent)

    def _paint(self) -> None:
        first, then = (0.0, _REPAINT_SECONDS) if self._on_terminal else (_PRINT_FIRST_SECONDS, _PRINT_SECONDS)
        pause = first
        while not self._ended.wait(pause):
            pause = then
            elapsed = f"{time.monotonic() - self._started:.0f} s"
            line = "  ".join(part for part in (self.title, self.at, elapsed) if part)
            if self._on_terminal:
                width = shutil.get_terminal_size().columns - 7
                self._write(f"\r\x1b[K...   {line[:width]}")
            else:
                self._write(f"...   {line}\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _dump_stacks_and_kill(process: "subprocess.Popen[str]", mark: str) -> None:
    """Send SIGUSR1 to the command and its children, so that Python processes dump their stacks; then kill them."""
    family = [each for each in offspring(mark) if process.pid in (each.number, each.parent)]
    for each in family:
        each.signal(signal.SIGUSR1)
    time.sleep(_GRACE_SECONDS)
    for each in family:
        each.signal(signal.SIGKILL)
    process.kill()
    process.wait()


def _kill(left: Sequence[Process]) -> tuple[str, ...]:
    """Kill the processes and return their command lines."""
    for each in left:
        each.signal(signal.SIGKILL)
    return tuple(each.command for each in left)
