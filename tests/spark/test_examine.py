"""A job's folder, examined and mended without Spark: the corners that a real one seldom shows."""

import os
import shutil
from pathlib import Path

import pytest

from strandline.checkpoint.examine import examine, require_sound
from strandline.checkpoint.file_copies import COPIES, read_copies, with_copies
from strandline.checkpoint.findings import Finding, Problem
from strandline.checkpoint.folder_lock import exclusive, is_running, share
from strandline.checkpoint.hadoop_checksums import beside
from strandline.checkpoint.job_folder import Checkpoint
from strandline.checkpoint.repair import repair
from strandline.errors import CheckpointDamaged, SetupError, StateError
from tests.spark.written import COMMIT, folder_of, plan, put


@pytest.fixture
def home(tmp_path: Path) -> Checkpoint:
    return folder_of(Checkpoint(tmp_path / "job"))


def found(home: Checkpoint) -> dict[str, Finding]:
    return {each.path: each for each in examine(home.folder).findings}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_is_no_jobs_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there is no job in"):
        examine(tmp_path)
    require_sound(tmp_path)  # a new job may start there


def test_a_whole_folder_has_nothing_wrong(home: Checkpoint) -> None:
    health = examine(home.folder)
    assert (health.findings, health.planned, health.committed) == ((), 2, True)
    assert repair(home.folder).done == ()


def test_a_bounded_run_that_was_played_at_once_has_nothing_wrong(tmp_path: Path) -> None:
    home = folder_of(Checkpoint(tmp_path / "job"), 0, with_copies=False)
    shutil.rmtree(home.spark)
    (home.folder / "extent.json").write_text('{"way": "at_once"}')
    with_copies(home, home.identity.lineage)
    assert set(read_copies(home.folder).held) == {"strandline.json", "extent.json"}
    assert examine(home.folder).findings == ()
    require_sound(home.folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["extent.json", "backfill.json", "clock.json"])
@pytest.mark.parametrize("torn", [b"", b'{"way"', None])
def test_what_was_looked_up_when_a_job_began_is_written_again(name: str, torn: bytes | None, tmp_path: Path) -> None:
    home = folder_of(Checkpoint(tmp_path / "job"), 0)
    file = home.folder / name
    content = b'{"version": 1, "floors": []}' if name == "clock.json" else b'{"way": "at_once"}'
    put(file, content)
    folder_of(home)
    file.write_bytes(torn) if torn is not None else file.unlink()
    with pytest.raises(CheckpointDamaged, match=name):
        require_sound(home.folder)
    assert repair(home.folder).left.goes_on
    assert file.read_bytes() == content


def test_torn_identities_of_logs_are_moved_aside(tmp_path: Path) -> None:
    home = folder_of(Checkpoint(tmp_path / "job"))
    put(home.folder / "logs.json", b'{"version"')
    assert not found(home)["logs.json"].goes_on
    assert repair(home.folder).left.goes_on
    assert not (home.folder / "logs.json").exists()


def test_without_copies_only_what_needs_none_is_mended(tmp_path: Path) -> None:
    home = folder_of(Checkpoint(tmp_path / "job"), with_copies=False)
    entry = home.spark / "offsets" / "2"
    entry.write_bytes(b"")
    assert found(home)["spark/offsets/2"].is_lasting
    assert "it is unknown" in found(home)["spark/offsets/2"].means
    before = contents(home.folder)
    assert not repair(home.folder).left.goes_on
    assert contents(home.folder) == before
    plan(home, 2)
    (home.spark / "commits" / "2").write_bytes(b"")
    assert repair(home.folder).left.goes_on


def test_a_job_before_its_first_batch_was_seen_begins_anew(tmp_path: Path) -> None:
    home = folder_of(Checkpoint(tmp_path / "job"), 0)
    plan(home, 0).write_bytes(b"v1\n{")
    mended = repair(home.folder)
    assert mended.left.goes_on
    assert mended.left.planned is None
    assert not (home.spark / "offsets" / "0").exists()


def test_a_range_that_is_gone_is_written_again_also_when_its_commit_is_gone_too(home: Checkpoint) -> None:
    before = contents(home.spark)
    for log in ("offsets", "commits"):
        for path in (home.spark / log / "2", beside(home.spark / log / "2")):
            path.unlink()
    assert found(home)["spark/offsets/2"].problem is Problem.MISSING
    assert repair(home.folder).left.goes_on
    assert contents(home.spark) == {
        name: data for name, data in before.items() if name not in ("commits/2", "commits/.2.crc")
    }


def test_a_commit_without_its_range_is_not_passed_over(tmp_path: Path) -> None:
    home = folder_of(Checkpoint(tmp_path / "job"), with_copies=False)
    (home.spark / "offsets" / "2").unlink()
    assert found(home)["spark/commits/2"].is_lasting


def test_a_range_with_fewer_positions_than_the_one_before_is_torn(tmp_path: Path) -> None:
    home = folder_of(Checkpoint(tmp_path / "job"))
    entry = plan(home, 3)
    put(entry, b"\n".join(entry.read_bytes().splitlines()[:3]))
    assert found(home)["spark/offsets/3"].problem is Problem.TORN
    assert repair(home.folder).left.planned == 2


def test_wrong_checksums_of_a_file_that_is_whole_are_moved_away(home: Checkpoint) -> None:
    sums = beside(home.spark / "offsets" / "2")
    sums.write_bytes(sums.read_bytes()[:-1] + b"?")
    assert not found(home)["spark/offsets/.2.crc"].goes_on
    assert repair(home.folder).left.findings == ()
    assert (home.spark / "offsets" / "2").exists()
    assert not sums.exists()


def test_a_query_without_its_id_gets_it_back_or_a_new_one(home: Checkpoint) -> None:
    before = (home.spark / "metadata").read_bytes()
    (home.spark / "metadata").write_bytes(b'{"id":"')
    assert repair(home.folder).left.findings == ()
    assert (home.spark / "metadata").read_bytes() == before
    (home.spark / "metadata").unlink()
    (home.folder / COPIES).unlink()
    assert repair(home.folder).left.goes_on
    assert b'"id"' in (home.spark / "metadata").read_bytes() != before


def test_strays_and_aliens_are_harmless_unless_spark_takes_them_for_a_batch(home: Checkpoint) -> None:
    put(home.spark / "offsets" / ".3.f0.tmp", b"v1")
    put(home.spark / "commits" / "notes", b"mine")
    beside(home.spark / "commits" / "7").write_bytes(b"")
    (home.folder / "notes.tmp").write_text("{")
    (home.folder / "notes.json").write_text("{")
    there = found(home)
    assert {name: each.problem.value for name, each in there.items()} == {
        "spark/offsets/.3.f0.tmp": "stray",
        "spark/offsets/..3.f0.tmp.crc": "stray",
        "spark/commits/.7.crc": "stray",
        "spark/commits/notes": "alien",
        "notes.tmp": "stray",
        "notes.json": "torn",
    }
    assert all(each.goes_on for each in there.values())
    put(home.spark / "commits" / "0002", COMMIT)
    assert not found(home)["spark/commits/0002"].goes_on
    mended = repair(home.folder)
    assert mended.left.findings == ()
    assert mended.beside is not None
    assert (mended.beside / "spark" / "commits" / "notes").read_bytes() == b"mine"


def test_each_repair_has_a_folder_of_its_own_that_says_what_was_done(home: Checkpoint) -> None:
    for number in (1, 2):
        (home.folder / "notes.json").write_text("{")
        mended = repair(home.folder)
        assert mended.beside == home.folder.with_name("job.damaged") / str(number)
        assert sorted(contents(mended.beside)) == ["notes.json", "repair.json"]


def test_damage_to_the_identity_is_mended_from_its_copy(home: Checkpoint) -> None:
    about = home.folder / "strandline.json"
    before = about.read_bytes()
    about.write_bytes(before.replace(b'"key_groups": ', b'"key_groups": 1'))
    with pytest.raises(CheckpointDamaged, match="strandline.json is torn"):
        require_sound(home.folder)
    assert repair(home.folder).left.findings == ()
    assert about.read_bytes() == before


@pytest.mark.slow
def test_nobody_repairs_a_folder_in_which_a_job_runs(home: Checkpoint) -> None:
    assert not is_running(home.folder)
    hold, other = share(home.folder), share(home.folder)
    assert is_running(home.folder)
    (home.folder / "notes.json").write_text("{")
    with pytest.raises(StateError, match="a job runs in"):
        repair(home.folder)
    os.close(hold)
    os.close(other)
    assert repair(home.folder).left.findings == ()
    with exclusive(home.folder), pytest.raises(StateError, match="is being repaired"):
        share(home.folder)


def test_state_whose_versions_spark_alone_can_tell_is_left_to_it(home: Checkpoint) -> None:
    described = b'v2\n{"operatorInfo":{"operatorId":0},"stateStoreInfo":[{"storeName":"default","numPartitions":1}]}'
    put(home.spark / "state" / "0" / "_metadata" / "v2" / "0", described)
    assert found(home)["spark/state/0/0"].is_lasting
    put(home.spark / "state" / "0" / "0" / "3_0f5c-11.changelog", b"")
    assert found(home) == {}
