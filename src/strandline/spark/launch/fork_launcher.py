"""Make Spark start its Python processes through a fork server that has imported their modules."""

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
from strandline.spark.launch.private_folder import is_private
from strandline.spark.patches.switch import is_on

_PYTHON: Final = "PYSPARK_PYTHON"
_WORKER_ENVIRONMENT: Final = "spark.executorEnv."
_SEED: Final = "PYTHONHASHSEED"
_THREADS: Final = "OMP_NUM_THREADS"
_FOLDER, _SOCKET = "strandline-python-", "door"
_BACKLOG: Final = 64
"""Processes that may ask at the same time."""


class ForkServer:
    """The process that forks, and a program that asks it to. Lives as long as this process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        remove_stale_folders()
        self.folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        self.python = self.folder / "python"
        """The program that Spark starts in place of Python."""
        try:
            self.process = self._start(self.folder / _SOCKET, worker_environment(settings))
        except OSError:
            shutil.rmtree(self.folder)
            raise
        atexit.register(self.close)

    def _start(self, address: Path, variables: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        client = shlex.join([sys.executable, "-IS", fork_client.__file__, str(address)])
        self.python.write_text(f'#!/bin/sh\nexec {client} "$@"\n')
        self.python.chmod(0o700)
        if not os.access(self.python, os.X_OK):
            raise PermissionError(f"nothing may be run from {self.folder.parent}")
        # Only the server holds the listening socket: when it is gone, clients get an error and do not wait.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(f"{address}.closed")
            listener.listen(_BACKLOG)
            Path(f"{address}.closed").rename(address)
            return subprocess.Popen(  # noqa: S603 - this very Python
                [sys.executable, "-m", "strandline.spark.launch.fork_server", str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=variables,
                pass_fds=[listener.fileno()],
            )

    def close(self) -> None:
        """End the server. Processes that it forked go on."""
        self.process.kill()
        self.process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


def remove_stale_folders() -> None:
    """Remove folders of programs that were killed with their fork server: no process listens there.

    Other users can make folders and sockets of this name too. Those are left alone: connecting to a socket whose queue
    is full would wait for ever.
    """
    for address in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*/{_SOCKET}"):
        if not is_private(address.parent):
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            try:
                connection.connect(str(address))
            except ConnectionRefusedError:
                shutil.rmtree(address.parent, ignore_errors=True)
            except OSError:  # its server is busy
                continue


def worker_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that Spark's workers start with, as far as libraries read it when they load."""
    of_workers = {
        name.removeprefix(_WORKER_ENVIRONMENT): value
        for name, value in settings.items()
        if name.startswith(_WORKER_ENVIRONMENT)
    }
    return {
        _SEED: "0",
        _THREADS: settings.get("spark.task.cpus", "1"),
        **os.environ,
        **of_workers,
        "PYTHONUNBUFFERED": "1",
    }


_lock: Final = threading.Lock()
_servers: list[ForkServer] = []


def forking_python(settings: Mapping[str, str]) -> Path | None:
    """Return the program to use as Spark's Python; None if it is switched off or cannot work here.

    A process has one fork server, started by its first session. A later session whose workers need other variables
    falls back to plain Python processes.
    """
    if sys.platform != "linux" or not is_on("fork_server"):  # libraries on other systems do not survive a fork
        return None
    with _lock:
        try:
            if not _servers or _servers[0].process.poll() is not None:
                _servers[:] = [ForkServer(settings)]
        except OSError:
            return None
        return _servers[0].python


@contextmanager
def with_python(python: Path | None) -> Iterator[None]:
    """Set PYSPARK_PYTHON while a Spark is started, and restore the environment afterwards."""
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
