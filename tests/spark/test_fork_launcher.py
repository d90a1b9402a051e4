"""Spark's Python processes, forked from one that has imported everything: each is what a Python of its own would be."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from strandline.spark.launch import fork_launcher
from strandline.spark.launch.fork_launcher import (
    ForkServer,
    forking_python,
    remove_stale_folders,
    with_python,
    worker_environment,
)
from strandline.spark.launch.fork_server import initial_environment, is_possible, process_name
from strandline.spark.patches.switch import is_on

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_on("fork_server"), reason="the patch is switched off"),
]

SETTINGS = {"spark.executorEnv.POLARS_MAX_THREADS": "1"}
PATIENCE = 30


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    made = ForkServer(SETTINGS)
    yield made
    made.close()


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """Where modules are found that only a test has."""
    (tmp_path / "telling.py").write_text(
        dedent("""
        import os, sys
        import polars as pl
        rows = pl.DataFrame({"a": [1, 1, 2]}).group_by("a").agg(pl.len()).height
        print(os.getppid(), os.getcwd(), os.environ["MINE"], sys.argv[1:], sys.stdin.read(), rows, __name__)
        print("an error", file=sys.stderr)
        sys.exit(3)
        """)
    )
    (tmp_path / "waiting.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    return tmp_path


def variables(folder: Path, **more: str) -> dict[str, str]:
    return worker_environment(SETTINGS) | {"PYTHONPATH": str(folder), "MINE": "yes"} | more


def started(python: Path, folder: Path, module: str, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    words = [str(python), "-m", module, "a word"]
    return subprocess.run(
        words, check=False, cwd=folder, env=env, input="in", capture_output=True, text=True, timeout=PATIENCE
    )


def test_one_that_is_forked_has_its_own_words_streams_variables_and_folder(server: ForkServer, said: Path) -> None:
    ended = started(server.python, said, "telling", variables(said))
    assert ended.stdout == f"{server.process.pid} {said} yes ['a word'] in 2 __main__\n"
    assert ended.stderr == "an error\n"
    assert ended.returncode == 3


def test_a_library_that_would_have_begun_otherwise_is_begun_anew(server: ForkServer, said: Path) -> None:
    ended = started(server.python, said, "telling", variables(said, PYTHONHASHSEED="7"))
    assert ended.stdout == f"{os.getpid()} {said} yes ['a word'] in 2 __main__\n"
    assert ended.returncode == 3


def test_where_nobody_forks_it_is_the_python_that_it_stands_for(said: Path) -> None:
    gone = ForkServer(SETTINGS)
    gone.process.kill()
    gone.process.wait()
    ended = started(gone.python, said, "telling", variables(said))
    gone.close()
    assert ended.stdout == f"{os.getpid()} {said} yes ['a word'] in 2 __main__\n"
    assert (ended.stderr, ended.returncode) == ("an error\n", 3)


def test_an_error_is_told_where_its_own_would_be(server: ForkServer, said: Path) -> None:
    ended = started(server.python, said, "nowhere", variables(said))
    assert "No module named nowhere" in ended.stderr
    assert ended.returncode == 1


@pytest.mark.parametrize("why", ["nothing may be run from it", "its name is too long for a socket"])
def test_where_the_folder_for_such_files_will_not_do_spark_has_its_usual_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    folder = tmp_path / ("x" * 100 if "long" in why else "x")
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(fork_launcher, "_servers", [])
    if "run" in why:
        monkeypatch.setattr(os, "access", lambda *_: False)
    assert forking_python(SETTINGS) is None
    assert not list(folder.iterdir())


def test_a_key_pressed_at_a_terminal_is_not_for_them(server: ForkServer, said: Path) -> None:
    words = [str(server.python), "-m", "waiting"]
    with subprocess.Popen(words, env=variables(said), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        other = int(process.stdout.readline())
        for each in (server.process.pid, other):
            os.kill(each, signal.SIGINT)
        time.sleep(0.2)
        assert lives(server.process.pid)
        assert lives(other)
        process.terminate()
    gone(other)


@pytest.mark.parametrize("whom", ["the one that was started", "the one that was forked"])
def test_whoever_of_the_two_is_ended_takes_the_other_along(server: ForkServer, said: Path, whom: str) -> None:
    words = [str(server.python), "-m", "waiting"]
    with subprocess.Popen(words, env=variables(said), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        other = int(process.stdout.readline())
        assert other != process.pid
        if whom == "the one that was started":
            process.terminate()
        else:
            os.kill(other, signal.SIGKILL)
        assert process.wait(PATIENCE) == 1
    gone(other)


def test_it_ends_with_the_program_that_has_started_it() -> None:
    program = dedent("""
        import os
        from strandline.spark.launch.fork_launcher import ForkServer
        made = ForkServer({})
        print(made.process.pid, made.folder, flush=True)
        os.kill(os.getpid(), 9)
    """)
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == -signal.SIGKILL
    process, folder = ended.stdout.split()
    gone(int(process))
    assert not Path(folder).exists()


def test_what_a_program_leaves_that_was_killed_with_all_it_had_started_goes_with_the_next(server: ForkServer) -> None:
    killed = ForkServer(SETTINGS)
    killed.process.kill()
    killed.process.wait()
    remove_stale_folders()
    assert not killed.folder.exists()
    assert server.python.exists()


def gone(process: int) -> None:
    until = time.monotonic() + PATIENCE
    while lives(process):
        assert time.monotonic() < until, "it lives on"
        time.sleep(0.05)


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_only_what_libraries_look_at_when_they_begin_must_be_the_same() -> None:
    mine = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    assert is_possible(["-m", "any"], {"HOME": "/elsewhere", "OMP_NUM_THREADS": "1"}, mine)
    assert is_possible(["-m", "any"], {}, mine)
    assert not is_possible(["-m", "any"], {"OMP_NUM_THREADS": "2"}, mine)
    assert not is_possible(["-m", "any"], {"_RJEM_MALLOC_CONF": "x"}, mine)
    assert not is_possible(["-c", "any"], {}, mine)
    assert not is_possible(["-m"], {}, mine)


def test_variables_are_those_that_workers_begin_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    made = worker_environment(SETTINGS | {"spark.executorEnv.MINE": "yes", "spark.master": "local"})
    assert (made["PYTHONHASHSEED"], made["OMP_NUM_THREADS"], made["MINE"]) == ("0", "4", "yes")
    assert made["POLARS_MAX_THREADS"] == "1"


def test_what_a_process_began_with_is_not_what_it_has_set_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET_SINCE", "yes")
    assert "SET_SINCE" not in initial_environment()
    assert initial_environment()["PATH"]


def test_processes_are_called_by_what_they_do_as_far_as_it_fits() -> None:
    assert process_name("pyspark.daemon", "pyspark.worker") == "pyspark.daemon"
    assert process_name("pyspark.daemon", "pyspark.sql.worker.create_data_source") == "create_data_sou"
    assert process_name("pyspark.sql.streaming.python_streaming_source_runner") == "python_streamin"


@pytest.mark.parametrize("before", [None, "/usr/bin/another"])
def test_afterwards_the_environment_is_what_it_was(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if before is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", before)
    with with_python(Path("/here/python")):
        assert os.environ["PYSPARK_PYTHON"] == "/here/python"
    assert os.environ.get("PYSPARK_PYTHON") == before
    with with_python(None):
        assert os.environ.get("PYSPARK_PYTHON") == before


def test_workers_of_a_spark_of_ours_are_forked_with_everything_imported(spark: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = "strandline.execution.keyed_step" in sys.modules
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [Path("/proc/self/comm").read_text().strip()], "known": [known]})

    seen = spark.range(1).mapInArrow(look, "name string, known boolean").collect()
    assert {tuple(row) for row in seen} == {("pyspark.daemon", True)}
