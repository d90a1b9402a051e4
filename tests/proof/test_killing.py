"""Whoever is killed is gone, with all it started; what does not come in time is a fault, not a thing to wait for."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proof import killing, zygote
from proof.jobs import Real
from proof.killing import Lives, Stuck, gone, members, play
from proof.schedule import Kill, Kind

Process = subprocess.Popen[bytes]
AWAY = "import os, sys, time\nif not os.fork():\n  os.setpgid(0, 0)\nprint(flush=True)\ntime.sleep(600)"


@contextmanager
def started(code: str) -> Iterator[Process]:
    """A session of its own, in which two say that they are there."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    try:
        yield process
    finally:
        killing._end(process)
        process.wait(60)
        process.stdout.close()


def test_who_has_made_a_group_of_its_own_is_killed_with_the_others() -> None:
    with started(AWAY) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"\n", b"\n"]
        assert len(members(process.pid)) == 2
        killing._end(process)
        gone(process)
        assert members(process.pid) == []
        assert process.returncode == -signal.SIGKILL


def test_who_lives_on_is_a_fault() -> None:
    code = "print(flush=True)\nimport time; time.sleep(600)"
    with started(code) as process, pytest.raises(Stuck, match=r"of the group \d+ live on"):
        gone(process, within=0)


def test_a_job_that_never_comes_to_its_point_is_told_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def sleeping(*_: Any) -> Iterator[Process]:
        with started("import time; time.sleep(600)") as process:
            yield process

    monkeypatch.setattr(killing, "PATIENCE", 0)
    monkeypatch.setattr(Lives, "started", sleeping)
    real = Real(str(tmp_path / "job"), ())
    told = play(real, 1, [Kill(Kind.POINT, "C9:1")], {}, lambda _: None)
    assert told.faults == ["after 0 kills: the job did not come to C9:1 in 0 s"]
    told = play(real, 1, [Kill(Kind.WORKER)], {}, lambda _: None)
    assert told.faults == ["after 0 kills: the job delivered no batch in 0 s"]


def test_a_forked_process_that_hangs_is_killed_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with started("import time; time.sleep(600)") as process:
        monkeypatch.setattr(zygote, "LONGEST", 0)
        assert zygote._waited(process.pid, time.monotonic()).code == zygote.HUNG
        assert members(process.pid) == []
