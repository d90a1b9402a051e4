"""`strandline checkpoint`: what is told, what is asked, what the exit code says."""

import json
from pathlib import Path

import pytest

from strandline.checkpoint.job_folder import Checkpoint
from strandline.cli.main import main
from tests.spark.written import folder_of


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def home(tmp_path: Path) -> Checkpoint:
    return folder_of(Checkpoint(tmp_path / "job"))


def test_a_whole_folder_can_go_on(home: Checkpoint, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("checkpoint", "check", str(home.folder)) == 0
    assert capsys.readouterr().out == "nothing is wrong: the job can go on\n"


def test_damage_is_told_with_what_repair_would_do_and_then_mended(
    home: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    (home.spark / "offsets" / "2").write_bytes(b"v1")
    (home.spark / "offsets" / "a\x1b[2Jb").write_bytes(b"")
    assert run("checkpoint", "check", str(home.folder)) == 1
    told = capsys.readouterr().out
    assert "torn    spark/offsets/2  the range of batch 2\n" in told
    assert "repair would write spark/offsets/2 again from its copy\n" in told
    assert "\x1b[2J" not in told
    assert told.endswith(f"mended: strandline checkpoint repair {home.folder}\n")
    assert run("checkpoint", "repair", str(home.folder)) == 2
    assert "say --yes" in capsys.readouterr().err
    assert run("checkpoint", "repair", str(home.folder), "--yes") == 0
    told = capsys.readouterr().out
    assert "done: write spark/offsets/2 again from its copy\n" in told
    assert f"what was damaged is in {home.folder}.damaged/1\n" in told
    assert told.endswith("nothing is wrong: the job can go on\n")


def test_it_is_told_as_json_too(home: Checkpoint, capsys: pytest.CaptureFixture[str]) -> None:
    (home.spark / "commits" / "2").write_bytes(b"")
    assert run("checkpoint", "check", str(home.folder), "--json") == 1
    told = json.loads(capsys.readouterr().out)
    (finding,) = told.pop("findings")
    assert told == {"folder": str(home.folder), "goes_on": False, "planned": 2, "committed": False, "running": False}
    assert (finding["path"], finding["problem"]) == ("spark/commits/2", "empty")
    assert run("checkpoint", "repair", str(home.folder), "--yes", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["done"] == ["move spark/commits/2 away"]
    assert told["goes_on"]


def test_what_cannot_be_mended_is_said_and_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = folder_of(Checkpoint(tmp_path / "job"), with_copies=False)
    (home.spark / "offsets" / "1").write_bytes(b"")
    assert run("checkpoint", "repair", str(home.folder), "--yes") == 1
    told = capsys.readouterr().out
    assert "repair would leave it as it is" in told
    assert told.endswith("not everything that stops it can be mended safely\n")


def test_a_folder_that_is_no_jobs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("checkpoint", "check", str(tmp_path)) == 2
    assert "there is no job in" in capsys.readouterr().err
