"""The demo as its own process: killed in the middle or interrupted, it goes on where it was."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from proof.killing import members
from strandline.checkpoint.job_folder import Checkpoint
from strandline.cli.demo.demo import WINDOW_SECONDS
from strandline.cli.demo.recount import recount
from strandline.connectors.scores import Scores
from strandline.kernel.output import Counts

pytestmark = pytest.mark.spark

EVENTS, RATE = 3_000, 100
PATIENCE = 300
"""Seconds a process may take on a machine that is busy with something else."""
BATCH = re.compile(r"^batch (\d+): .*; (\d+) in = ")


class Demo:
    """A demo at work in a process group of its own, and the lines it has said so far."""

    def __init__(self, folder: Path, seed: int, *more: str) -> None:
        program = Path(sys.executable).parent / "strandline"
        words = ["--folder", folder, "--seed", seed, "--events", EVENTS, "--rate", RATE, *more]
        self._errors = (folder.parent / "errors.txt").open("ab")
        self.process = subprocess.Popen(
            [str(word) for word in (program, "demo", *words)],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                self.lines.append(line.rstrip("\n"))

    @property
    def batches(self) -> list[tuple[int, int]]:
        """The batches it told of: their numbers, and how many elements had come by then."""
        found = [BATCH.match(line) for line in list(self.lines)]
        return [(int(match[1]), int(match[2])) for match in found if match]

    def wait_for(self, fact: Callable[["Demo"], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not fact(self):
            assert self.process.poll() is None, f"it ended too soon: {self.lines[-5:]}"
            assert time.monotonic() < until, f"it did not happen in time: {self.lines[-5:]}"
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def end(self) -> int:
        """Waits until it and everyone it started are gone; returns its exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        until = time.monotonic() + PATIENCE
        while members(self.process.pid):
            assert time.monotonic() < until, "someone it started lives on"
            time.sleep(0.05)
        return code

    def close(self) -> None:
        if members(self.process.pid):
            with suppress(ProcessLookupError):  # workers of Spark's may be left, who have groups of their own
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(PATIENCE)
        self._errors.close()


@contextmanager
def playing(folder: Path, seed: int, *more: str) -> Iterator[Demo]:
    # The dashboard of a demo that is killed stays for a while.
    demo = Demo(folder, seed, *more or ["--no-dashboard"])
    try:
        yield demo
    finally:
        demo.close()


def in_the_middle(demo: Demo) -> bool:
    """Some batches have been told, and there is more to come."""
    return len(demo.batches) >= 4 and demo.batches[-1][1] > 100


def ledger(folder: Path) -> dict[int, tuple[str, Counts]]:
    """For each batch the digest of its range, and who came in."""
    with closing(sqlite3.connect(folder / "scores.db")) as connection:
        rows = connection.execute("SELECT batch, digest, counts FROM strandline_ledger").fetchall()
    return {batch: (digest, Counts(**json.loads(counts))) for batch, digest, counts in rows}


def is_right(folder: Path, seed: int) -> None:
    """The tables agree with the log, and every element was counted exactly once."""
    origin = int(Checkpoint(folder / "checkpoint").latest_offsets()["origin"])
    result = recount(Scores(seed, EVENTS, RATE), origin, folder / "scores.db", WINDOW_SECONDS)
    assert result.disagreements == []
    assert result.agrees
    everyone = sum((counts for _, counts in ledger(folder).values()), Counts())
    assert everyone.read == EVENTS
    assert everyone.missing == 0
    assert min(everyone.read, everyone.contributed, everyone.late, everyone.dead) > 0


def agreement(demo: Demo) -> bool:
    return any("cells of team and window agree" in line for line in demo.lines)


def test_a_demo_killed_in_the_middle_goes_on_and_its_totals_agree(tmp_path: Path) -> None:
    folder, seed = tmp_path / "run", 21
    with playing(folder, seed) as killed:
        killed.wait_for(in_the_middle)
        killed.signal(signal.SIGKILL)
        assert killed.end() == -signal.SIGKILL
    before = ledger(folder)
    assert 0 < sum(counts.read for _, counts in before.values()) < EVENTS

    with playing(folder, seed) as again:
        assert again.end() == 0, again.lines[-5:]
        assert agreement(again)
        assert again.batches[0][0] >= max(before)
    after = ledger(folder)
    assert {batch: after[batch] for batch in before} == before
    is_right(folder, seed)


def test_ctrl_c_stops_the_demo_cleanly_and_the_next_start_goes_on(tmp_path: Path) -> None:
    folder, seed = tmp_path / "run", 23
    with playing(folder, seed) as stopped:
        stopped.wait_for(in_the_middle)
        stopped.signal(signal.SIGINT)
        assert stopped.end() == 0, stopped.lines[-5:]
        assert stopped.lines[-1] == (
            f"Stopped. Run the same command again: it resumes from its checkpoint in {folder}."
        )
        assert not agreement(stopped)
    assert "Traceback" not in (tmp_path / "errors.txt").read_text()
    before = ledger(folder)

    with playing(folder, seed) as again:
        assert again.end() == 0, again.lines[-5:]
        assert agreement(again)
        assert again.batches[0][0] >= max(before)
        assert "\x1b" not in "".join(again.lines)
    is_right(folder, seed)


def test_a_demo_whose_spark_dies_ends_with_one_message(tmp_path: Path) -> None:
    with playing(tmp_path / "run", 24) as demo:
        demo.wait_for(lambda each: bool(each.batches))
        # A JVM that is about to start a program is there twice for a moment, the second time with a higher number.
        java = min(process for process in members(demo.process.pid) if command_of(process).endswith("java"))
        os.kill(java, signal.SIGKILL)
        assert demo.end() == 2
    told = (tmp_path / "errors.txt").read_text()
    errors = [line for line in told.splitlines() if line.startswith("error: ")]
    assert errors == ["error: Spark is gone"]
    assert "spark/job.py" not in told  # PySpark may complain on its own account; nothing of ours does


def command_of(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().partition(b"\0")[0].decode()
