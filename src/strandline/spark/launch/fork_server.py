"""A process that has imported what Spark's Python processes need, and forks them: one import where there were six.

Spark starts a Python for every question it has before the first batch, one after the other, and two workers for the
batch itself; each imports for half a second to one and a half, of which there is nothing to be seen (decision 0034).
Here it is done once, while the JVM starts.

It never uses what it imports: threads are lost in a fork, and the pools of Polars and Arrow begin with their first use.

usage: python -m strandline.spark.launch.fork_server SOCKET_NUMBER

The socket must be listening. The process ends when standard input does.
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
"""Forks in its turn: workers for tasks, or those whom Spark asks about a source."""
IMPORTED: Final = (
    _DAEMON,
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pandas",
    "pyarrow.parquet",
    "strandline.spark.tasks.prepare",
    "strandline.spark.tasks.keyed_step",
    "strandline.spark.sources.read_in_task",
)
_AT_LOAD: Final = (
    "PYTHONHASHSEED", "PYTHONHOME", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONUTF8", "PYTHONIOENCODING",
    "PYTHONDEVMODE", "PYTHONWARNINGS", "OMP_", "OPENBLAS_", "MKL_", "LD_", "MALLOC_", "_RJEM_", "MIMALLOC_", "ARROW_",
    "POLARS_",
)  # fmt: skip
"""What is read when a program or a library begins; how such variables are called, or how their names begin."""
_NAME: Final = 15
"""So many letters the kernel keeps of the name of a process."""


def main(listens: int) -> None:
    """Forks for everyone who asks there, until whoever has started it is gone. They may ask before it is ready."""
    # A key pressed at a terminal is for whoever has started it, as with the JVM and what that starts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=listens) as door:
        for name in IMPORTED:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
        # Those that end are not waited for.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while 0 not in (ready := select.select([0, door.fileno()], [], [])[0]) or os.read(0, 1):
            if door.fileno() in ready:
                way = door.accept()[0]
                with suppress(OSError, EOFError, ValueError), way:
                    _answered(way, door)
        # Whoever has started it may have been killed.
        shutil.rmtree(Path(door.getsockname()).parent, ignore_errors=True)


def _answered(way: socket.socket, door: socket.socket) -> None:
    """Forks, or says nothing, and then the other one does without."""
    head, files, _, _ = socket.recv_fds(way, 4, 3)
    try:
        asked = json.loads(_whole(way, int.from_bytes(head, "big")))
        if len(files) == 3 and is_possible(asked["words"], asked["environment"], begun_with()) and os.fork() == 0:
            door.close()
            _become(asked, files, way)
    finally:
        for each in files:
            os.close(each)


def _whole(way: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = way.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def is_possible(words: Sequence[str], environment: Mapping[str, str], mine: Mapping[str, str]) -> bool:
    """Whether one forked here, begun with variables of my own, is what a Python started with these would be."""
    same = all(mine.get(name) == said for name, said in environment.items() if name.startswith(_AT_LOAD))
    return words[:1] == ["-m"] and len(words) > 1 and same


def begun_with() -> dict[str, str]:
    """The variables of this process when it began: libraries set some of their own."""
    said = Path("/proc/self/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    return {name: value for name, _, value in (each.partition("=") for each in said if each)}


def _become(asked: Mapping[str, Any], files: Sequence[int], way: socket.socket) -> None:
    """Takes the place of the one that asks, and does not come back."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for place, each in enumerate(files):
            os.dup2(each, place)
            os.close(each)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        module, *others = asked["words"][1:]
        with suppress(OSError):  # so that people see who it is
            Path("/proc/self/comm").write_text(named(module, *others))
        way.sendall(f"{os.getpid()}\n".encode())
        # Workers that it forks in turn are not it.
        os.register_at_fork(after_in_child=way.close)
        code = _run(module, others)
        way.sendall(f"{code}\n".encode())
    except BaseException:  # noqa: BLE001 - it must not go on as what it was forked from
        traceback.print_exc()
    finally:
        os._exit(code)


def named(module: str, *words: str) -> str:
    """How a process is called that runs such a module, or forks others that do: as much as fits."""
    if module == _DAEMON and words and words[0] != "pyspark.worker":
        return named(words[0])
    return module if len(module) <= _NAME else module.rpartition(".")[2][:_NAME]


def _run(module: str, words: Sequence[str]) -> int:
    """As `python -m` does; the code with which it ends."""
    known = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and each not in sys.path]
    sys.path[1:1] = known
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
