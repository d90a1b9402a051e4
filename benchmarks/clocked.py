"""Spark's daemon of Python workers with a clock on what they do for the sake of metrics alone.

A job is told to use it by `spark.python.daemon.module`. What each call took is appended to a file: a worker may be
ended at any moment, and its clock with it. The clock is the process's, since Polars works in threads of its own.
"""

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

FILE: Final = "STRANDLINE_CLOCKED"
"""The variable that names the file."""
DONE_FOR_METRICS: Final = ("look", "telling", "asked_for")

P = ParamSpec("P")
T = TypeVar("T")


def clocked(function: Callable[P, T], file: Path, clock: Callable[[], float] = time.process_time) -> Callable[P, T]:
    """The same function, which leaves word of the seconds that it took."""

    @functools.wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> T:
        begun = clock()
        try:
            return function(*args, **named)
        finally:
            took = clock() - begun
            with file.open("a", encoding="ascii") as told:
                told.write(f"{took:.9f}\n")

    return called


def seconds(file: Path) -> float:
    """What all calls took together; a line that a worker did not end is not counted."""
    lines = file.read_text(encoding="ascii").splitlines(keepends=True) if file.exists() else []
    return sum(float(line) for line in lines if line.endswith("\n"))


def put_clocks(file: Path) -> None:
    """On every such function, wherever tasks call it. Only in a worker: Polars does not outlive a fork."""
    from strandline.spark import at_once, keyed_step, prepare  # noqa: PLC0415

    for module in (prepare, keyed_step, at_once):
        for name in DONE_FOR_METRICS:
            function: Any = getattr(module, name, None)
            if function is not None and not hasattr(function, "__wrapped__"):  # a worker is asked here for every task
                setattr(module, name, clocked(function, file))


def main() -> None:
    from pyspark import daemon  # noqa: PLC0415 - only where it is the daemon

    work = daemon.worker

    def worker(sock: Any, authenticated: bool) -> Any:
        put_clocks(Path(os.environ[FILE]))
        return work(sock, authenticated)

    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
