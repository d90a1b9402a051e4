"""One line for each step: what runs, for how long, and how it ended.

On a terminal the line is repainted in place; elsewhere it is told anew now and then, so that a log shows progress too.
Standard library only: prepare.py uses it before anything is installed.
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
_TELL_FIRST_SECONDS = 1.0
_TELL_SECONDS = 10.0
_LOOK_SECONDS = 0.2
_LAST_WORDS_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and everything it said."""

    code: int
    output: str
    left: tuple[str, ...] = ()
    """What it started and did not stop; nobody of them lives any more."""
    fell_silent: bool = False
    """It was killed since nothing was heard of it."""


class Listener(threading.Thread):
    """Hears what a command says, so that nobody else has to wait for it; nothing more comes after None."""

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
    """A line that lives as long as its `with` block; it fails by an exception, or when it is told so."""

    def __init__(self, title: str, out: TextIO = sys.stderr) -> None:
        self.title = title
        self.seconds = 0.0
        self.failed = False
        self._out = out
        self.at = ""
        self._on_terminal = out.isatty() and os.environ.get("TERM") != "dumb"
        self._over = threading.Event()
        self._painter = threading.Thread(target=self._paint, daemon=True)

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._painter.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._painter.join()
        self.seconds = time.monotonic() - self._started
        self.failed = self.failed or kind is not None
        word = "FAIL" if self.failed else "ok"
        colour = "31" if word == "FAIL" else "32"
        mark = f"\r\x1b[K\x1b[{colour}m{word:<4}\x1b[0m" if self._on_terminal else f"{word:<4}"
        self._write(f"{mark}  {self.title}  {self.seconds:.1f} s\n")

    def doing(self, what: str) -> None:
        """What the step is at; shown behind its title."""
        self.at = what

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] = lambda _: None,
        silence: float | None = None,
    ) -> Ran:
        """Runs the command, hands on each line as it comes, and keeps them all; nothing it started outlives it.

        If it says nothing for `silence` seconds, it is asked where it hangs (SIGUSR1) and killed.
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
        lines = Listener(cast("IO[str]", process.stdout)).lines
        try:
            return self._listen(process, lines, mark, on_line, silence)
        except BaseException:
            # An interrupt may reach only us: the command must not go on alone.
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
        said: list[str] = []
        left: tuple[str, ...] = ()
        heard = time.monotonic()
        ended: float | None = None
        fell_silent = False
        while True:
            try:
                line = lines.get(timeout=_LOOK_SECONDS)
            except Empty:
                now = time.monotonic()
                if ended is None and process.poll() is not None:
                    ended, left = now, _killed(offspring(mark))
                elif ended is None and silence is not None and now - heard > silence:
                    fell_silent = True
                    said.append(f"Nothing was heard for {silence:.0f} s: it is asked where it hangs, and killed.\n")
                    _ask_and_kill(process, mark)
                elif ended is not None and now - ended > _LAST_WORDS_SECONDS:
                    break  # someone who bears no mark holds the pipe
            else:
                if line is None:
                    break
                heard = time.monotonic()
                said.append(line)
                on_line(line.rstrip())
        process.wait()
        return Ran(process.returncode, "".join(said), left or _killed(offspring(mark)), fell_silent)

    def _paint(self) -> None:
        first, then = (0.0, _REPAINT_SECONDS) if self._on_terminal else (_TELL_FIRST_SECONDS, _TELL_SECONDS)
        pause = first
        while not self._over.wait(pause):
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


def _ask_and_kill(process: "subprocess.Popen[str]", mark: str) -> None:
    """Whoever knows the signal tells its stacks; only the command and its own children are asked."""
    family = [each for each in offspring(mark) if process.pid in (each.number, each.parent)]
    for each in family:
        each.signal(signal.SIGUSR1)
    time.sleep(_LAST_WORDS_SECONDS)
    for each in family:
        each.signal(signal.SIGKILL)
    process.kill()
    process.wait()


def _killed(left: Sequence[Process]) -> tuple[str, ...]:
    for each in left:
        each.signal(signal.SIGKILL)
    return tuple(each.command for each in left)
