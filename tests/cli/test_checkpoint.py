"""`strandline checkpoint`: output, confirmation and exit codes."""

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


def test_an_undamaged_folder_can_resume(home: Checkpoint, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("checkpoint", "check", str(home.folder)) == 0
    assert capsys.readouterr().out == "no damage found: the job can resume\n"


def test_damage_is_listed_with_its_repair_and_then_repaired(
    home: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    (home.spark / "offsets" / "2").write_bytes(b"v1")
    (home.spark / "offsets" / "a\x1b[2Jb").write_bytes(b"")
    assert run("checkpoint", "check", str(home.folder)) == 1
    output = capsys.readouterr().out
    assert "torn    spark/offsets/2  the range of batch 2\n" in output
    assert "repair would write spark/offsets/2 again from its copy\n" in output
    assert "\x1b[2J" not in output
    assert output.endswith(f"repaired: strandline checkpoint repair {home.folder}\n")
    assert run("checkpoint", "repair", str(home.folder)) == 2
    assert "add --yes" in capsys.readouterr().err
    assert run("checkpoint", "repair", str(home.folder), "--yes") == 0
    output = capsys.readouterr().out
    assert "done: write spark/offsets/2 again from its copy\n" in output
    assert f"damaged files were moved to {home.folder}.damaged/1\n" in output
    assert output.endswith("no damage found: the job can resume\n")


def test_findings_are_printed_as_json(home: Checkpoint, capsys: pytest.CaptureFixture[str]) -> None:
    (home.spark / "commits" / "2").write_bytes(b"")
    assert run("checkpoint", "check", str(home.folder), "--json") == 1
    output = json.loads(capsys.readouterr().out)
    (finding,) = output.pop("findings")
    assert output == {"folder": str(home.folder), "goes_on": False, "planned": 2, "committed": False, "running": False}
    assert (finding["path"], finding["problem"]) == ("spark/commits/2", "empty")
    assert run("checkpoint", "repair", str(home.folder), "--yes", "--json") == 0
    output = json.loads(capsys.readouterr().out)
    assert output["done"] == ["move spark/commits/2 away"]
    assert output["goes_on"]


def test_unrepairable_damage_is_reported_and_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = folder_of(Checkpoint(tmp_path / "job"), with_copies=False)
    (home.spark / "offsets" / "1").write_bytes(b"")
    assert run("checkpoint", "repair", str(home.folder), "--yes") == 1
    output = capsys.readouterr().out
    assert "repair would leave it as it is" in output
    assert output.endswith("not all of the damage can be repaired safely\n")


def test_a_folder_without_a_job_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("checkpoint", "check", str(tmp_path)) == 2
    assert "there is no job in" in capsys.readouterr().err
