"""A job's folder: whose it is, and where its sources stood."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.checkpoint.clock_floors import CLOCK
from strandline.checkpoint.job_folder import Checkpoint, Noted
from strandline.errors import CheckpointMismatch, SetupError
from strandline.kernel.watermarks import FOREVER
from strandline.plan.compile import to_stages
from strandline.ports.ledger import Sealed
from tests.plan.endpoints import PaperSink, totals

ASKED = totals().root
STAGES = to_stages(ASKED)


@pytest.fixture
def home(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "deep" / "checkpoint")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def log(home: Checkpoint, batch: int, offsets: dict[str, int]) -> None:
    """An entry of Spark's offset log."""
    entry = home.spark / "offsets" / str(batch)
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_text(
        "v1\n" + json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1_234}) + "\n" + json.dumps(offsets)
    )


def test_a_new_folder_gets_an_identity_that_the_next_run_finds(home: Checkpoint) -> None:
    first = home.claim(ASKED, STAGES)
    assert first.fingerprint == STAGES.fingerprint
    assert first.lineage
    assert home.claim(ASKED, STAGES) == first
    assert list(contents(home.folder)) == ["strandline.json"]


def test_a_folder_is_its_owners_alone(home: Checkpoint) -> None:
    home.claim(ASKED, STAGES)
    assert home.folder.stat().st_mode & 0o777 == 0o700


def test_two_folders_have_two_lineages(tmp_path: Path) -> None:
    one, other = (Checkpoint(tmp_path / name).claim(ASKED, STAGES) for name in ("one", "other"))
    assert one.lineage != other.lineage


def test_another_definition_is_refused_with_what_changed_and_what_that_does_to_the_state(home: Checkpoint) -> None:
    home.claim(ASKED, STAGES)
    before = contents(home.folder)
    other = totals(sink=PaperSink("other paper")).root
    with pytest.raises(CheckpointMismatch, match="was made by another definition") as refused:
        home.claim(other, to_stages(other))
    assert refused.value.detail == (
        "sink name was 'paper' and is 'other paper': "
        "the state fits; the new sink starts without the rows of the old one"
    )
    assert "a folder of its own" in refused.value.hint
    assert contents(home.folder) == before


def test_a_folder_with_something_else_in_it_is_refused_and_left_alone(home: Checkpoint) -> None:
    home.folder.mkdir(parents=True)
    (home.folder / "thesis.txt").write_text("the only copy")
    with pytest.raises(CheckpointMismatch, match="is not empty and holds no Strandline checkpoint"):
        home.claim(ASKED, STAGES)
    assert contents(home.folder) == {"thesis.txt": b"the only copy"}


def test_an_empty_folder_is_taken(home: Checkpoint) -> None:
    home.folder.mkdir(parents=True)
    assert home.claim(ASKED, STAGES) == home.claim(ASKED, STAGES)


def test_a_run_killed_while_it_wrote_its_identity_does_not_lock_the_folder(home: Checkpoint) -> None:
    home.folder.mkdir(parents=True)
    (home.folder / "strandline.tmp").write_text('{"finger')
    assert home.claim(ASKED, STAGES) == home.claim(ASKED, STAGES)
    assert list(contents(home.folder)) == ["strandline.json"]


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"fingerprint": "print"}', "\x00\x00", '"text"'])
def test_an_identity_that_cannot_be_read_is_refused_by_its_path(home: Checkpoint, damaged: str) -> None:
    home.claim(ASKED, STAGES)
    (home.folder / "strandline.json").write_text(damaged)
    with pytest.raises(CheckpointMismatch, match="cannot read .*strandline.json"):
        home.claim(ASKED, STAGES)


def test_a_file_in_the_way_is_refused_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SetupError, match="cannot make the folder") as refused:
            Checkpoint(folder).claim(ASKED, STAGES)
        assert refused.value.detail
        assert refused.value.hint == "choose another folder"
    assert (tmp_path / "file").read_text() == "mine"


def test_where_the_sources_stood_is_read_from_the_offset_log(home: Checkpoint) -> None:
    assert home.latest_offsets() == {}
    assert home.offsets(0) is None
    for batch in (0, 2, 10, 9):
        log(home, batch, {"origin": 5, "0": batch})
    assert home.offsets(2) == {"origin": 5, "0": 2}
    assert home.latest_offsets() == {"origin": 5, "0": 10}


def test_the_first_range_is_its_whole_entry(home: Checkpoint) -> None:
    log(home, 0, {"0": 3})
    entry = (home.spark / "offsets" / "0").read_bytes()
    assert home.seal(0) == Sealed(hashlib.sha256(entry).hexdigest(), None, '{"0": 3}')
    assert home.seal(0) == home.seal(0)
    first = home.seal(0).digest
    log(home, 0, {"0": 4})
    assert home.seal(0).digest != first


def test_a_range_begins_where_the_one_before_it_ended_whatever_its_id(home: Checkpoint) -> None:
    for batch, position in ((0, 5), (1, 7), (4, 9)):
        log(home, batch, {"0": position})
    assert (home.seal(1).starts, home.seal(1).ends) == ('{"0": 5}', '{"0": 7}')
    assert home.seal(4).starts == '{"0": 7}'
    before = home.seal(4).digest
    log(home, 1, {"0": 8})
    assert home.seal(4).digest != before


def test_the_files_a_position_stands_for_belong_to_its_range(home: Checkpoint) -> None:
    """The same position before and after a power cut may stand for other files."""
    log(home, 0, {"logOffset": 0})
    log(home, 1, {"logOffset": 2})
    files = home.spark / "sources" / "0"
    files.mkdir(parents=True)
    for number in range(4):
        (files / str(number)).write_text(f"file {number}")
    before = home.seal(1).digest
    for outside in ("0", "3"):
        (files / outside).write_text("another file")
        assert home.seal(1).digest == before
    for inside in ("1", "2"):
        (files / inside).write_text("another file")
        assert home.seal(1).digest != before
        (files / inside).write_text(f"file {inside}")
    (files / "2").rename(files / "2.compact")
    assert home.seal(1).digest == before


def test_a_source_that_had_no_position_yet_has_one_later(home: Checkpoint) -> None:
    log(home, 0, {"0": 1})
    with (home.spark / "offsets" / "0").open("a") as entry:
        entry.write("\n-")
    log(home, 1, {"0": 2})
    with (home.spark / "offsets" / "1").open("a") as entry:
        entry.write('\n{"logOffset":0}')
    assert home.seal(1).starts == home.seal(0).ends


def test_how_far_time_had_come_is_noted_for_the_last_two_batches(home: Checkpoint) -> None:
    home.claim(ASKED, STAGES)
    assert home.noted(0) is None
    for batch in (0, 1, 2):
        home.note(batch, batch * 100, {0: batch * 100, 1: batch})
    assert home.noted(0) is None
    assert home.noted(1) == Noted(100, {0: 100, 1: 1})
    assert home.noted(2) == Noted(200, {0: 200, 1: 2})


@pytest.mark.parametrize("torn", ["", "{", '{"1": {}}', "[]", '{"x": 1}', '{"1": 5}'])
def test_a_torn_note_is_done_without(home: Checkpoint, torn: str) -> None:
    home.claim(ASKED, STAGES)
    (home.folder / "notes.json").write_text(torn)
    assert home.noted(1) is None
    assert not home.has_ended
    home.note(2, 5, {})
    assert home.noted(2) == Noted(5, {})


def test_a_job_has_ended_when_time_has_and_spark_knows(home: Checkpoint) -> None:
    home.claim(ASKED, STAGES)
    home.note(3, FOREVER, {})
    assert not home.has_ended
    (home.spark / "commits").mkdir(parents=True)
    (home.spark / "commits" / "3").touch()
    assert home.has_ended


def test_the_clock_of_a_batch_is_the_one_spark_wrote_down(home: Checkpoint) -> None:
    log(home, 3, {"0": 3})
    assert home.clock(3) == 1_234


def test_a_batch_is_committed_once_spark_says_so(home: Checkpoint) -> None:
    assert not home.is_committed(4)
    (home.spark / "commits").mkdir(parents=True)
    (home.spark / "commits" / "4").touch()
    assert home.is_committed(4)
    assert not home.is_committed(5)


def note(home: Checkpoint, number: int, *files: tuple[str, int], compact: bool = False) -> None:
    """A list of files as Spark keeps it: each with the number of the list it was first in."""
    entry = home.spark / "sources" / "0" / (f"{number}.compact" if compact else str(number))
    entry.parent.mkdir(parents=True, exist_ok=True)
    told = [json.dumps({"path": f"file:///in/{name}", "timestamp": 5, "batchId": list_}) for name, list_ in files]
    entry.write_text("\n".join(["v1", *told]))


def names(home: Checkpoint, lists: int | None = None) -> dict[int, list[str]]:
    found = home.listed(7, 0, lists)
    return {number: sorted(file.path.removeprefix("file:///in/") for file in files) for number, files in found.items()}


def test_the_files_of_the_last_lists_are_known_also_from_a_compact_one(home: Checkpoint) -> None:
    log(home, 7, {"logOffset": 4})
    assert names(home) == {}
    note(home, 2, ("a", 0), ("b", 1), ("c", 2), compact=True)
    note(home, 3, ("d", 3))
    note(home, 4, ("e", 4), ("f", 4))
    note(home, 5, ("later", 5))
    assert names(home) == {0: ["a"], 1: ["b"], 2: ["c"], 3: ["d"], 4: ["e", "f"]}
    assert names(home, 1) == {4: ["e", "f"]}
    assert names(home, 4) == {1: ["b"], 2: ["c"], 3: ["d"], 4: ["e", "f"]}


def test_a_source_that_is_no_list_has_none(home: Checkpoint) -> None:
    log(home, 7, {"0": 4})
    assert home.listed(7, 0) == {}


def test_a_restored_job_counts_on_and_its_first_range_begins_where_its_savepoint_ended(home: Checkpoint) -> None:
    home.claim(ASKED, STAGES)
    move = {"ends": "as the sinks have it"}
    home.adopt(replace(home.identity, first=7, moves=(move,)))
    log(home, 0, {"0": 3})
    log(home, 1, {"0": 5})
    (home.spark / "commits").mkdir()
    for batch in ("0", "1", ".1.crc"):
        (home.spark / "commits" / batch).touch()
    assert (home.first, home.newest(), home.committed()) == (7, 8, [7, 8])
    assert (home.in_spark(8), home.numbered(1)) == (1, 8)
    assert home.offsets(8) == {"0": 5}
    assert home.is_committed(8)
    assert not home.is_committed(1)
    assert home.seal(8).starts == "as the sinks have it"
    log(home, 2, {"0": 6})
    assert home.seal(9).starts == '{"0": 5}'


def test_a_source_without_a_position_has_none(home: Checkpoint) -> None:
    entry = home.spark / "offsets" / "0"
    entry.parent.mkdir(parents=True)
    entry.write_text('v1\n{"batchTimestampMs": 1}\n-\n{"tick": 4}')
    assert home.offsets(0) is None
    assert home.positions(0) == ("-", '{"tick": 4}')


def stamped(home: Checkpoint, *stamps: int) -> list[int]:
    """Seal batches with these times of the machine, oldest first; return their clocks."""
    for batch, at in enumerate(stamps):
        entry = home.spark / "offsets" / str(batch)
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text(f'v1\n{{"batchTimestampMs": {at}}}\n{{"tick": {batch}}}')
        home.seal(batch)
    return [home.clock(batch) for batch in range(len(stamps))]


def test_a_clock_that_is_set_back_stands_still_until_it_is_reached_again(home: Checkpoint) -> None:
    home.claim(ASKED, STAGES)
    assert stamped(home, 100, 200, 50, 60, 210, 205) == [100, 200, 200, 200, 210, 210]
    assert json.loads((home.folder / CLOCK).read_text()) == {"version": 1, "floors": [[2, 200], [5, 210]]}


def test_a_repeated_batch_has_the_same_clock_also_when_older_entries_are_gone(home: Checkpoint) -> None:
    home.claim(ASKED, STAGES)
    before = stamped(home, 100, 200, 50, 60)
    for batch in (0, 1):
        (home.spark / "offsets" / str(batch)).unlink()
    home.seal(3)
    assert [home.clock(batch) for batch in (2, 3)] == before[2:] == [200, 200]


def test_a_clock_that_was_never_set_back_needs_no_file(home: Checkpoint) -> None:
    home.claim(ASKED, STAGES)
    assert stamped(home, 100, 100, 250) == [100, 100, 250]
    home.keep_clock()
    assert not (home.folder / CLOCK).exists()


def test_a_folder_of_before_continues_from_the_highest_clock_in_its_log(home: Checkpoint) -> None:
    """Batch 1 ran before the clock was set back, by a version that kept no floors."""
    home.claim(ASKED, STAGES)
    stamped(home, 100, 500, 60, 70)
    (home.folder / CLOCK).unlink()
    home.keep_clock()
    assert stamped(home, 100, 500, 60, 70, 80)[-1] == 500


def test_a_damaged_file_of_floors_is_told(home: Checkpoint) -> None:
    home.claim(ASKED, STAGES)
    stamped(home, 100, 50)
    (home.folder / CLOCK).write_text('{"version": 7}')
    with pytest.raises(CheckpointMismatch, match="cannot read .*clock.json"):
        home.clock(1)
