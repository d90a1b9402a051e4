"""The Python that a Spark of ours starts: one that forks from a process of this program, where that can be done."""

import atexit
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from strandline.spark.launch import fork_client

_PYTHON: Final = "PYSPARK_PYTHON"
_OF_WORKERS: Final = "spark.executorEnv."
_SEED: Final = "PYTHONHASHSEED"
_THREADS: Final = "OMP_NUM_THREADS"
_FOLDER, _DOOR = "strandline-python-", "door"
_MOST: Final = 64
"""That ask at once."""


class Zygote:
    """A process that forks, and the program that asks it to, for as long as this process lives."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        forget_gone()
        self.folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        self.python = self.folder / "python"
        try:
            self.process = self._begun(self.folder / _DOOR, environment(settings))
        except OSError:
            shutil.rmtree(self.folder)
            raise
        atexit.register(self.close)

    def _begun(self, door: Path, variables: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        asking = shlex.join([sys.executable, "-IS", fork_client.__file__, str(door)])
        self.python.write_text(f'#!/bin/sh\nexec {asking} "$@"\n')
        self.python.chmod(0o700)
        if not os.access(self.python, os.X_OK):
            raise PermissionError(f"nothing may be run from {self.folder.parent}")
        # The one who forks has the only end of it: if that one is gone, nobody waits for an answer.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listens:
            listens.bind(f"{door}.closed")
            listens.listen(_MOST)
            Path(f"{door}.closed").rename(door)
            return subprocess.Popen(  # noqa: S603 - this very Python
                [sys.executable, "-m", "strandline.spark.launch.fork_server", str(listens.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=variables,
                pass_fds=[listens.fileno()],
            )

    def close(self) -> None:
        """Nobody is forked any more; those that are there live on."""
        self.process.kill()
        self.process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


def forget_gone() -> None:
    """Folders of programs that were killed with all that they had started: nobody listens there."""
    for door in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*/{_DOOR}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
            try:
                way.connect(str(door))
            except ConnectionRefusedError:
                shutil.rmtree(door.parent, ignore_errors=True)
            except OSError:  # somebody else's
                continue


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The variables that Spark's workers will have when they begin, as far as libraries look at them."""
    of_workers = {
        name.removeprefix(_OF_WORKERS): value for name, value in settings.items() if name.startswith(_OF_WORKERS)
    }
    return {
        _SEED: "0",
        _THREADS: settings.get("spark.task.cpus", "1"),
        **os.environ,
        **of_workers,
        "PYTHONUNBUFFERED": "1",
    }


_lock: Final = threading.Lock()
_mine: list[Zygote] = []


def forking(settings: Mapping[str, str]) -> Path | None:
    """The Python for a Spark of this process with such settings; None where it cannot be had.

    There is one, begun with the first that asks: another session, with other variables, is told so and starts its own.
    """
    if sys.platform != "linux":  # others have libraries that do not bear it
        return None
    with _lock:
        try:
            if not _mine or _mine[0].process.poll() is not None:
                _mine[:] = [Zygote(settings)]
        except OSError:
            return None
        return _mine[0].python


@contextmanager
def started_by(python: Path | None) -> Iterator[None]:
    """A Spark that starts now has this Python; afterwards the environment is what it was."""
    if python is None:
        yield
        return
    known = os.environ.get(_PYTHON)
    os.environ[_PYTHON] = str(python)
    try:
        yield
    finally:
        if known is None:
            os.environ.pop(_PYTHON, None)
        else:
            os.environ[_PYTHON] = known
