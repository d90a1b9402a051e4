"""Launch the JVM of an embedded Spark, with its output in a file, possibly before the session is needed."""

import contextlib
import subprocess
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from strandline.spark.patches.jvm_access import use_gateway
from strandline.spark.patches.jvm_locale import utf8_file_names

_CREATES_ARCHIVE: Final = "ArchiveClassesAtExit"


def launch_jvm(conf: SparkConf, log: Path) -> Any:
    """Start a JVM and return py4j's gateway to it. Its output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file, utf8_file_names():
        return launch_gateway(conf, {"stdout": file, "stderr": subprocess.STDOUT})  # type: ignore[no-untyped-call]


def use_jvm(gateway: Any) -> None:
    """Make later sessions of this process use this JVM; end it if the process has another one already."""
    if not use_gateway(gateway):
        end_jvm(gateway)


def end_jvm(gateway: Any) -> None:
    """Kill a JVM that is not needed. One that another process started is only disconnected."""
    if gateway.proc is not None:
        gateway.proc.kill()
        gateway.proc.wait()
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()


def can_start_early(options: str) -> bool:
    """Whether a JVM with these options may start before it is certain that it will be used.

    A JVM that writes a class archive at its end would write an almost empty one.
    """
    return _CREATES_ARCHIVE not in options
