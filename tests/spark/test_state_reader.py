"""What a job keeps, read beside it: what needs no Spark. The rest is on the journey of `test_savepoints`."""

import os
from pathlib import Path

import pytest

from strandline.checkpoint.hardlink_snapshot import snapshot
from strandline.checkpoint.job_folder import Checkpoint
from strandline.errors import StateError
from strandline.savepoints.state_reader import committed_batch, read_state


@pytest.fixture
def home(tmp_path: Path) -> Checkpoint:
    """A checkpoint with three batches, of which the last was not committed."""
    for name in ("offsets/0", "offsets/1", "offsets/2", "commits/0", "commits/1", "state/0/0/1.changelog"):
        file = tmp_path / "spark" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return Checkpoint(tmp_path)


def test_what_is_held_stays_though_the_job_cleans_it_away_and_is_let_go_in_the_end(home: Checkpoint) -> None:
    with snapshot(home) as still:
        (home.spark / "state/0/0/1.changelog").unlink()
        (home.spark / "commits/2").touch()
        assert (still.spark / "state/0/0/1.changelog").read_text() == "state/0/0/1.changelog"
        assert still.committed() == [0, 1]
    assert [each.name for each in home.folder.iterdir()] == ["spark"]


def test_what_a_killed_process_held_is_let_go_by_the_next_and_what_a_living_one_holds_is_not(home: Checkpoint) -> None:
    dead, mine = home.folder / ".held-999999999-a", home.folder / f".held-{os.getpid()}-b"
    for left in (dead, mine):
        left.mkdir()
    with snapshot(home):
        assert not dead.exists()
        assert mine.exists()


def test_a_batch_is_meant_that_was_committed_and_is_kept(home: Checkpoint) -> None:
    assert committed_batch(home) == 1
    assert committed_batch(home, 0) == 0
    with pytest.raises(StateError, match="batch 2 is not kept") as refused:
        committed_batch(home, 2)
    assert refused.value.detail == "batches 0 to 1 are"


def test_a_folder_without_a_batch_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="there is no batch to read"):
        read_state(None, Checkpoint(tmp_path))  # type: ignore[arg-type]
    (tmp_path / "spark" / "commits").mkdir(parents=True)
    with pytest.raises(StateError, match="no batch is committed"):
        committed_batch(Checkpoint(tmp_path))
