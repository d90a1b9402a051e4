"""A packaged job on a real cluster: a master, two workers and spark-submit, each a process of this machine."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyspark
import pytest

import strandline
from strandline.spark.launch.find_java import find_java
from strandline.spark.launch.session import settings, submitted_settings

SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE = 300
"""Seconds a process may take on a machine that is busy with something else."""
FILES, EACH = 3, 40
BEGAN = 1_700_000_000

PLAYS = '''
import sys

import polars as pl


def located(frame: pl.DataFrame) -> pl.DataFrame:
    """Each row with the Python that it was looked at by."""
    return frame.with_columns(python=pl.lit(sys.executable))
'''
"""A module of the user's own, which only its package brings to the workers."""

JOB = """
import sys
from pathlib import Path

import strandline as sl
from plays import located

home = Path(sys.argv[1])
columns = "team string, score long, at timestamp"
pipeline = (
    sl.read(sl.files(home / "in", sl.json(columns), ends=True, files_per_batch=1))
    .map(located, columns + ", python string")
    .event_time("at", sl.bounded(seconds=10))
    .key_by("team", "python")
    .window(sl.tumbling(minutes=1))
    .aggregate(total=sl.sum("score"))
    .write(sl.sqlite(home / "totals.db", table="totals"))
)
assert pipeline.run(checkpoint=home / "job", by_arrival=True).await_end()
"""


def environment(folder: Path) -> Path:
    """A Python with the user's module and Strandline, as an archive; what both need lies where it is installed."""
    place = folder / "environment"
    venv.EnvBuilder(symlinks=True).create(place)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "plays.py").write_text(PLAYS)
    # A folder that is named in a file like this is looked into, but the files like this in it are not read: there
    # Strandline itself is not found, unless it was brought along.
    (packages / "needs.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    shutil.copytree(Path(strandline.__file__).parent, packages / "strandline")
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(place, arcname=".")
    return archive


class Process:
    """A program of Spark's at work, in a process group of its own, and what it has said."""

    def __init__(self, log: Path, *words: str, **variables: str) -> None:
        self._log = log
        # Nothing of Spark's that the tests themselves run in.
        known = {name: each for name, each in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))}
        mine = {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
        # The second compiler would take more of two cores than it saves in a minute.
        mine |= {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"} | variables
        with log.open("wb") as said:
            self.process = subprocess.Popen(
                words, stdout=said, stderr=subprocess.STDOUT, cwd=log.parent, env=known | mine, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def await_words(self, pattern: str) -> str:
        until = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.said)):
            assert self.process.poll() is None, self.said[-2_000:]
            assert time.monotonic() < until, self.said[-2_000:]
            time.sleep(0.05)
        return found[1]

    def close(self) -> None:
        """Ends it and whoever it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """A master and its workers, at ports that are free; the master's address."""
    started: list[Process] = []
    program, at = str(SPARK_HOME / "bin" / "spark-class"), ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    try:
        started.append(Process(folder / "master.log", program, "org.apache.spark.deploy.master.Master", *at))
        address = started[0].await_words(r"Starting Spark master at (spark://\S+)")
        room = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
        for number in range(workers):
            words = ("org.apache.spark.deploy.worker.Worker", *at, *room, address)
            started.append(Process(folder / f"worker-{number}.log", program, *words))
        for each in started[1:]:
            each.await_words("(Successfully registered) with master")
        yield address
    finally:
        for each in reversed(started):
            each.close()


def submit(folder: Path, master: str, archive: Path) -> Process:
    """The job as a user hands it in: the environment travels, the driver stays here."""
    (folder / "plays.py").write_text(PLAYS)
    (folder / "job.py").write_text(JOB)
    told = {
        "spark.cores.max": "2", "spark.executor.cores": "1", "spark.executor.memory": "600m",
        "spark.pyspark.python": "./environment/bin/python", "spark.pyspark.driver.python": sys.executable,
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    }  # fmt: skip
    confs = [word for name, value in told.items() for word in ("--conf", f"{name}={value}")]
    words = ("--master", master, "--archives", f"{archive}#environment", *confs, str(folder / "job.py"), str(folder))
    ours = str(Path(strandline.__file__).parent.parent)
    return Process(folder / "driver.log", str(SPARK_HOME / "bin" / "spark-submit"), *words, PYTHONPATH=ours)


def feed(folder: Path) -> Counter[tuple[str, str]]:
    """Files of scores, and the total of each team and minute."""
    folder.mkdir()
    totals: Counter[tuple[str, str]] = Counter()
    for number in range(FILES):
        rows = []
        for each in range(EACH):
            second, team = number * EACH + each, ("red", "blue", "jade")[each % 3]
            rows.append({"team": team, "score": each, "at": f"2024-05-01T12:{second // 60:02}:{second % 60:02}Z"})
            totals[team, f"2024-05-01 12:{second // 60:02}:00.000"] += each
        file = folder / f"{number}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        # Files are read in the order in which they were written, by the millisecond.
        os.utime(file, (BEGAN + number, BEGAN + number))
    return totals


@pytest.mark.spark
def test_a_packaged_job_runs_on_the_workers_of_a_cluster_and_its_totals_are_right(tmp_path: Path) -> None:
    expected, archive = feed(tmp_path / "in"), environment(tmp_path)
    with cluster(tmp_path, workers=2) as master:
        job = submit(tmp_path, master, archive)
        try:
            job.process.wait(PATIENCE)
        finally:
            job.close()
        assert job.process.returncode == 0, job.said[-3_000:]
    with closing(sqlite3.connect(tmp_path / "totals.db")) as reader:
        rows = reader.execute("SELECT team, window_start, total, python FROM totals").fetchall()
    found: Counter[tuple[str, str]] = Counter()
    for team, start, total, _ in rows:
        found[team, start] += total
    assert found == expected
    # Both workers took part, with the Python of the archive, and not the one of this process.
    unpacked = {place.resolve() for place in (tmp_path / "work").glob("app-*/[0-9]*")}
    assert len(unpacked) == 2
    assert {Path(python).parent.parent.parent.resolve() for *_, python in rows} <= unpacked
    about = json.loads((tmp_path / "job" / "strandline.json").read_text())
    assert about["key_groups"] == 4


def test_what_was_said_to_spark_submit_goes_before_our_settings() -> None:
    said = {
        "spark.master": "spark://there:7077",
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.cores.max": "12",
    }
    wanted = submitted_settings(said)
    assert not wanted.keys() & {"spark.master", "spark.driver.host", "spark.ui.enabled", "spark.sql.session.timeZone"}
    assert wanted["spark.sql.shuffle.partitions"] == wanted["spark.default.parallelism"] == "12"
    state = "spark.sql.streaming.stateStore.providerClass"
    assert wanted[state] == settings(1)[state]


def test_how_many_cores_there_are_is_not_guessed() -> None:
    assert "spark.sql.shuffle.partitions" not in submitted_settings({})
    assert submitted_settings({"spark.executor.instances": "3", "spark.executor.cores": "4"})[
        "spark.default.parallelism"
    ] == "12"  # fmt: skip
