"""A batch that Spark plays again after a kill says the same and keeps the same, to the last byte."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from strandline.checkpoint.job_folder import Checkpoint
from tests.spark import replaying
from tests.spark.replaying import EVENTS

pytestmark = pytest.mark.spark

PATIENCE = 300
"""Seconds a process may take on a machine that is busy with something else."""


def run(folder: Path, *wish: str) -> int:
    """Runs the job in a process group of its own; returns how it ended."""
    with (folder / "said").open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, str(replaying.__file__), str(folder), *wish],
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            return process.wait(PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def notes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "notes").read_text().splitlines()]


def taken(checkpoint: Path, batch: int) -> dict[str, bytes]:
    """What Spark wrote of the state of a batch, by partition; it goes, so that what is found there later is new."""
    folder, version = Checkpoint(checkpoint).spark / "state" / "0", batch + 1
    found = {file.parent.name: file.read_bytes() for file in folder.glob(f"*/{version}.changelog")}
    for file in [*folder.glob(f"*/{version}.*"), *folder.glob(f"*/.{version}.*")]:
        file.unlink()
    return found


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_batch_killed_around_its_commit_is_played_again_to_the_same_bytes(moment: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    assert run(tmp_path, moment) == -signal.SIGKILL, (tmp_path / "said").read_text()[-2_000:]
    killed = notes(tmp_path)[-1]
    batch = killed["batch"]
    assert not Checkpoint(checkpoint).is_committed(batch)
    kept = taken(checkpoint, batch)
    assert kept

    assert run(tmp_path) == 0, (tmp_path / "said").read_text()[-2_000:]
    told = notes(tmp_path)
    (again,) = [note for note in told if note["batch"] == batch and note["epoch"] > killed["epoch"]]
    assert again["digest"] == killed["digest"]
    assert taken(checkpoint, batch) == kept
    assert sum({note["batch"]: note["read"] for note in told}.values()) == EVENTS
