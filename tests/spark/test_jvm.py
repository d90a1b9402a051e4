"""The JVM of a job starts while its sinks are opened; one that nobody needs ends, and does no harm."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.spark.launch.jvm import can_start_early
from strandline.spark.patches.switch import is_on
from tests.spark_session import archive_if_there

_EARLY = pytest.mark.skipif(not is_on("background_jvm"), reason="the patch is switched off")
_BEGINS = """
import sys, time
from pathlib import Path
import strandline as sl
from strandline.errors import StrandlineError
from strandline.spark.launch import jvm
from strandline.spark.launch.session import begin_session, start_session

begun, launch = [], jvm.launch_gateway

def launched(*words):
    begun.append(launch(*words))
    return begun[-1]

jvm.launch_gateway = launched

def have_ended():
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if begun and all(each.proc.poll() is not None for each in begun):
            return len(begun)
        time.sleep(0.05)
    return None

here = Path(sys.argv[1])
alone = {"spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 {sys.argv[2]}".strip()}
"""

_GIVEN_UP = """
starting = begin_session("given up", log=here / "spark.log", overrides=alone)
starting.cancel()
print(have_ended(), "has ended")
spark = start_session("wanted", log=here / "spark.log", overrides=alone)
print(spark.range(10).selectExpr("sum(id)").first()[0])
"""

_REFUSED = """
(here / "in").mkdir()
(here / "file").touch()
games = sl.read(sl.files(here / "in", sl.json("at timestamp"))).event_time("at", sl.bounded(seconds=1))
try:
    out = sl.sqlite(here / "file" / "out.db", table="games")
    games.write(out).run(checkpoint=here / "job", settings=alone)
except StrandlineError as problem:
    print(problem)
print(have_ended(), "has ended")
"""


def _said(program: str, folder: Path) -> list[str]:
    environ = {name: each for name, each in os.environ.items() if name != "SPARK_HOME"}
    command = [sys.executable, "-c", _BEGINS + program, str(folder), archive_if_there()]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=180)
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr, "what the JVM says is for its log"
    return ran.stdout.strip().splitlines()


@pytest.mark.spark
@_EARLY
def test_a_jvm_that_is_given_up_ends_and_the_next_session_has_its_own(tmp_path: Path) -> None:
    assert _said(_GIVEN_UP, tmp_path) == ["1 has ended", "45"]
    assert (tmp_path / "spark.log").exists()


@pytest.mark.spark
@_EARLY
def test_a_sink_that_cannot_be_opened_leaves_no_jvm_behind(tmp_path: Path) -> None:
    problem, ended = _said(_REFUSED, tmp_path)
    assert "out.db" in problem
    assert ended == "1 has ended"


def test_a_jvm_that_leaves_an_archive_is_started_once_it_is_sure_to_be_used() -> None:
    assert can_start_early("-Xss4m -XX:SharedArchiveFile=spark.jsa")
    assert not can_start_early("-Xss4m -XX:ArchiveClassesAtExit=spark.new")
