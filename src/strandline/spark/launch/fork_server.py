"""Import once what Spark's Python processes need, then fork them: one import in place of six.

Spark starts a Python process for each question that it has before the first batch, one after the other, and two workers
for the batch. Each imports for 0.5 to 1.5 s (decision 0034). The server imports once, while the JVM starts.

It never uses what it imports. Threads are lost in a fork, and the thread pools of Polars and Arrow start at first use.

usage: python -m strandline.spark.launch.fork_server SOCKET_NUMBER

The socket must be listening. The process ends when standard input is closed.
"""

import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_DAEMON: Final = "pyspark.daemon"
"""Forks in its turn: workers for tasks, or processes that Spark asks about a source."""
IMPORTED: Final = (
    _DAEMON,
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pandas",
    "pyarrow.parquet",
    "strandline.execution.prepare",
    "strandline.execution.keyed_step",
    "strandline.spark.sources.read_in_task",
)
_READ_AT_LOAD: Final = (
    "PYTHONHASHSEED", "PYTHONHOME", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONUTF8", "PYTHONIOENCODING",
    "PYTHONDEVMODE", "PYTHONWARNINGS", "OMP_", "OPENBLAS_", "MKL_", "LD_", "MALLOC_", "_RJEM_", "MIMALLOC_", "ARROW_",
    "POLARS_",
)  # fmt: skip
"""Prefixes of variables that a program or a library reads when it loads."""
_NAME_LENGTH: Final = 15
"""Letters of a process name that the kernel keeps."""


def main(listening: int) -> None:
    """Fork for each client until the process that started the server is gone. Clients may ask before it is ready."""
    # Ctrl-C at a terminal is for the process that started the server, as with the JVM and its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=listening) as listener:
        for name in IMPORTED:
            with suppress(ModuleNotFoundError):  # other versions of PySpark have other modules
                importlib.import_module(name)
        gc.collect()
        gc.freeze()
        # Let the kernel reap children.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while 0 not in (ready := select.select([0, listener.fileno()], [], [])[0]) or os.read(0, 1):
            if listener.fileno() in ready:
                connection = listener.accept()[0]
                with suppress(OSError, EOFError, ValueError), connection:
                    _serve(connection, listener)
        # The process that started the server may have been killed before it could clean up.
        shutil.rmtree(Path(listener.getsockname()).parent, ignore_errors=True)


def _serve(connection: socket.socket, listener: socket.socket) -> None:
    """Fork, or close the connection without an answer; then the client becomes a plain Python."""
    head, files, _, _ = socket.recv_fds(connection, 4, 3)
    try:
        request = json.loads(_receive(connection, int.from_bytes(head, "big")))
        possible = is_possible(request["words"], request["environment"], initial_environment())
        if len(files) == 3 and possible and os.fork() == 0:
            listener.close()
            _become(request, files, connection)
    finally:
        for each in files:
            os.close(each)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def is_possible(words: Sequence[str], environment: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Whether a fork of this process equals a Python that is started with these words and this environment."""
    same = all(own.get(name) == value for name, value in environment.items() if name.startswith(_READ_AT_LOAD))
    return words[:1] == ["-m"] and len(words) > 1 and same


def initial_environment() -> dict[str, str]:
    """Return the environment that this process started with; libraries have changed os.environ since."""
    entries = Path("/proc/self/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    return {name: value for name, _, value in (each.partition("=") for each in entries if each)}


def _become(request: Mapping[str, Any], files: Sequence[int], connection: socket.socket) -> None:
    """Run the requested module with the client's streams, environment and folder, then exit."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, each in enumerate(files):
            os.dup2(each, number)
            os.close(each)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        module, *others = request["words"][1:]
        with suppress(OSError):  # so that `ps` shows the module
            Path("/proc/self/comm").write_text(process_name(module, *others))
        connection.sendall(f"{os.getpid()}\n".encode())
        # Workers that this process forks must not hold the connection open.
        os.register_at_fork(after_in_child=connection.close)
        code = _run(module, others)
        connection.sendall(f"{code}\n".encode())
    except BaseException:  # noqa: BLE001 - the child must not go on as the server
        traceback.print_exc()
    finally:
        os._exit(code)


def process_name(module: str, *words: str) -> str:
    """Return the name of a process that runs this module, cut to what the kernel keeps."""
    if module == _DAEMON and words and words[0] != "pyspark.worker":
        return process_name(words[0])
    return module if len(module) <= _NAME_LENGTH else module.rpartition(".")[2][:_NAME_LENGTH]


def _run(module: str, words: Sequence[str]) -> int:
    """Run a module as `python -m` does, and return its exit code."""
    added = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and each not in sys.path]
    sys.path[1:1] = added
    sys.argv = [module, *words]
    sys.modules.pop(module, None)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
    return 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
