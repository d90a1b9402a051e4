"""`strandline lag` of a folder: files that no batch has read, by the job's own log of files."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.test_main import run

JOB = """
import strandline as sl

source = sl.files({folder!r}, sl.json("team string"), pattern="*.json")
pipeline = sl.read(source).write(sl.console(), delivery="at_least_once")
"""


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, Path, Path]:
    """A job that has read one of three files."""
    folder, spark = tmp_path / "in", tmp_path / "job" / "spark"
    for each in (folder, spark / "offsets", spark / "sources" / "0"):
        each.mkdir(parents=True)
    for name in ("one two.json", "three.json", "four.json", "_draft.json", "notes.txt"):
        (folder / name).write_text('{"team": "red"}')
    (spark / "offsets" / "0").write_text('v1\n{"batchTimestampMs": 1}\n{"logOffset": 0}\n{}')
    read = {"path": f"file://{folder}/one%20two.json", "timestamp": 1, "batchId": 0}
    (spark / "sources" / "0" / "0").write_text(f"v1\n{json.dumps(read)}")
    file = tmp_path / "job_behind_a_folder.py"
    file.write_text(JOB.format(folder=str(folder)))
    return f"{file}:pipeline", folder, tmp_path / "job"


def test_unread_files_of_a_folder_are_counted_with_bytes_and_age(
    job: tuple[str, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    where, folder, checkpoint = job
    os.utime(folder / "three.json", (1_000, 1_000))
    assert run("lag", where, "--checkpoint", str(checkpoint), "--json") == 0
    (output,) = json.loads(capsys.readouterr().out)
    assert (output["source"], output["files"], output["bytes"]) == (f"files({str(folder)!r})", 2, 30)
    assert output["seconds"] > 1e9
    assert run("lag", where, "--checkpoint", str(checkpoint)) == 0
    assert "2 unread files with 30 B, the oldest written" in capsys.readouterr().out


def test_a_job_that_has_read_nothing_is_refused(
    job: tuple[str, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    where, _, checkpoint = job
    (checkpoint / "spark" / "offsets" / "0").unlink()
    assert run("lag", where, "--checkpoint", str(checkpoint)) == 2
    assert "has read nothing" in capsys.readouterr().err
