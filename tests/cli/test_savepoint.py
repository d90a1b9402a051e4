"""Savepoint commands that need no Spark."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from strandline.checkpoint.job_folder import Checkpoint, Identity
from strandline.plan.nodes import to_plain
from tests.cli.test_main import run
from tests.spark.test_restoring import KEPT, pipeline
from tests.spark.test_savepoint_files import saved

MOVE = {
    "as": "restore", "savepoint": "0123456789", "name": "monday", "lineage": "line", "batch": 7,
    "positions": ['{"logOffset":3}'], "ends": "", "digest": "d", "version": "0.1.0", "at": "2024-05-01T12:00:00+00:00",
}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    home = Checkpoint(tmp_path / "job")
    home.folder.mkdir()
    home.adopt(Identity("print", "line", "stages", to_plain(pipeline().root), 4, first=7, moves=(MOVE,)))
    return home.folder


def written(folder: Path, more: str) -> str:
    """Write a pipeline that differs in `more` from the one that made the state."""
    file = folder / f"job_{abs(hash(more))}.py"
    file.write_text(
        "import strandline as sl\nfrom tests.spark.test_restoring import pipeline as base\n"
        f"pipeline = base(total=sl.sum('score'), kinds=sl.count_distinct('score'), {more})\n"
    )
    return str(file)


def test_a_plan_prints_the_effect_on_each_part_and_whether_the_job_can_resume(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("plan", written(tmp_path, ""), "--checkpoint", str(job)) == 0
    assert "Nothing has changed." in capsys.readouterr().out
    assert run("plan", written(tmp_path, "best=sl.max('score')"), "--checkpoint", str(job)) == 0
    message = capsys.readouterr().out
    assert "compatible   step 0, total, kinds, best by team" in message
    assert "in open windows it covers elements from the restore on" in message
    assert run("plan", written(tmp_path, "kind='int'"), "--checkpoint", str(KEPT / "savepoint-1"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "compatible"


def test_lineage_prints_the_ancestors_of_a_job(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("lineage", str(job)) == 0
    message = capsys.readouterr().out
    assert "restore   of savepoint monday (01234567) at batch 7, by Strandline 0.1.0" in message
    assert 'from {"logOffset":3}' in message
    assert run("lineage", str(job), "--json") == 0
    assert json.loads(capsys.readouterr().out)["moves"] == [MOVE]
    assert run("lineage", str(job.parent)) == 2
    assert "holds no Strandline checkpoint" in capsys.readouterr().err


def test_savepoints_are_listed_shown_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = saved(tmp_path / "all" / "monday")
    assert run("savepoint", "list", str(tmp_path / "all")) == 0
    assert "monday" in capsys.readouterr().out
    assert run("savepoint", "show", str(found.folder)) == 0
    assert "batch 8 of lineage line" in capsys.readouterr().out
    assert run("savepoint", "show", str(found.folder), "--json") == 0
    assert json.loads(capsys.readouterr().out)["identity"] == json.loads(json.dumps(asdict(found.manifest.identity)))
    (found.folder / "state" / "step-0" / "windows.parquet").write_bytes(b"")
    assert run("savepoint", "show", str(found.folder)) == 2
    assert "windows.parquet" in capsys.readouterr().err
    assert run("savepoint", "delete", str(found.folder), "--yes") == 0
    assert run("savepoint", "list", str(tmp_path / "all"), "--json") == 0
    assert capsys.readouterr().out.endswith("[]\n")
    assert run("savepoint", "list", str(tmp_path / "none")) == 2
