"""The list of this machine's jobs, recorded by their starts."""

import tempfile
from pathlib import Path

import pytest

from strandline.observe.known_jobs import VARIABLE, is_temporary, known_jobs, register, remember
from tests.dashboard.filled import definition, identify


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "data" / "jobs.json"))
    return register()


def a_job(folder: Path) -> Path:
    identify(folder, definition())
    return folder


def test_the_job_that_started_last_comes_first(tmp_path: Path, file: Path) -> None:
    remember(a_job(tmp_path / "one"))
    remember(a_job(tmp_path / "two"), "jobs.py:totals")
    remember(tmp_path / "one")
    assert [Path(job.folder).name for job in known_jobs()] == ["one", "two"]
    assert known_jobs()[1].pipeline == f"{Path.cwd() / 'jobs.py'}:totals"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_start_without_a_pipeline_location_keeps_the_known_one(tmp_path: Path, file: Path) -> None:
    remember(a_job(tmp_path / "one"), "jobs.py:totals")
    remember(tmp_path / "one")
    (job,) = known_jobs()
    assert job.pipeline == f"{Path.cwd() / 'jobs.py'}:totals"
    remember(tmp_path / "one", "others.py:totals")
    (job,) = known_jobs()
    assert job.pipeline == f"{Path.cwd() / 'others.py'}:totals"


def test_a_job_in_a_temporary_folder_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert is_temporary(tmp_path / "tmp" / "test" / "job")
    assert not is_temporary(tmp_path / "jobs")


def test_a_deleted_folder_is_not_listed(tmp_path: Path, file: Path) -> None:
    remember(a_job(tmp_path / "one"))
    (tmp_path / "one" / "strandline.json").unlink()
    assert known_jobs() == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 9, "jobs": []}', '{"format": 1, "jobs": [1]}'])
def test_an_unreadable_file_counts_as_empty(tmp_path: Path, file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    assert known_jobs() == []
    remember(a_job(tmp_path / "one"))
    assert len(known_jobs()) == 1


def test_an_unwritable_file_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "a file" / "jobs.json"))
    remember(a_job(tmp_path / "one"))
    assert known_jobs() == []


def test_by_default_the_file_is_in_the_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert register() == tmp_path / "strandline" / "jobs.json"
