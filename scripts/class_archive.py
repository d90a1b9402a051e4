"""Make the archive of Spark's classes, with which a JVM starts in half the CPU time.

A job that ends leaves one. Tests start about fifty JVMs, and kill many of them, so the archive is made before them. A
second start does nothing. That no archive can be made is no error: a JVM starts without one, too.
"""

import subprocess
import sys
import tempfile
import time

from strandline.spark.launch.session import JAVA, with_archive
from strandline.spark.launch.slim_spark_home import slim_home

WAIT_SECONDS = 120
JOB = """
import strandline as sl

totals = (
    sl.read(sl.scores(seed=7, events=2_000, rate=4_000))
    .event_time("at", sl.bounded(seconds=3))
    .key_by("team")
    .window(sl.tumbling(seconds=5))
    .aggregate(total=sl.sum("score"))
)
totals.write(sl.sqlite("scores.db", table="totals")).run(checkpoint="job").await_end()
"""


def is_there() -> bool:
    """Whether a JVM that is started now loads an archive."""
    home = slim_home()
    return home is not None and "SharedArchiveFile" in with_archive({}, home).get(JAVA, "")


def main() -> int:
    if is_there():
        return 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", JOB], cwd=folder, capture_output=True, check=False, timeout=300)
    # The JVM writes the archive after the program has ended.
    end = time.monotonic() + WAIT_SECONDS
    while not is_there() and time.monotonic() < end:
        time.sleep(0.5)
    print("" if is_there() else f"no archive was made in {slim_home()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
