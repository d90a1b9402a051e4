"""One line for each step: what runs, for how long, and how it ended.

On a terminal the line is repainted in place; elsewhere it is told anew now and then, so that a log shows progress too.
Standard library only: prepare.py uses it before anything is installed.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

_REPAINT_SECONDS = 0.2
_TELL_FIRST_SECONDS = 1.0
_TELL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and everything it said."""

    code: int
    output: str


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
    ) -> Ran:
        """Runs the command, hands on each line as it comes, and keeps them all."""
        said: list[str] = []
        with subprocess.Popen(
            command,
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            try:
                for line in process.stdout or ():
                    said.append(line)
                    on_line(line.rstrip())
            except BaseException:
                # An interrupt may reach only us: the command must not go on alone.
                process.terminate()
                raise
        return Ran(process.returncode, "".join(said))

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
