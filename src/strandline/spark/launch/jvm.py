"""The JVM of a Spark of ours: its chatter goes to a file, and it may start while the job does something else."""

import contextlib
import subprocess
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from strandline.spark.patches.jvm_locale import any_name

_LEAVES_ARCHIVE: Final = "ArchiveClassesAtExit"


def is_there() -> bool:
    """Whether this process has a JVM already."""
    return SparkContext._gateway is not None  # noqa: SLF001 - the only place that says so


def launched(conf: SparkConf, log: Path) -> Any:
    """A JVM, and the way to it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file, any_name():
        return launch_gateway(conf, {"stdout": file, "stderr": subprocess.STDOUT})  # type: ignore[no-untyped-call]


def taken(gateway: Any) -> None:
    """Sessions of this process are from now on in that JVM, unless somebody else was first."""
    with SparkContext._lock:  # noqa: SLF001
        if SparkContext._gateway is None:  # noqa: SLF001
            SparkContext._gateway = gateway  # noqa: SLF001
            SparkContext._jvm = gateway.jvm  # noqa: SLF001
            return
    ended(gateway)


def ended(gateway: Any) -> None:
    """A JVM that nobody needs."""
    if gateway.proc is not None:  # else somebody else has started it
        gateway.proc.kill()
        gateway.proc.wait()
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()


def may_be_unwanted(options: str) -> bool:
    """Whether a JVM with these options can be started before it is sure that it will be used.

    One that leaves an archive of its classes behind would leave one of next to none.
    """
    return _LEAVES_ARCHIVE not in options
