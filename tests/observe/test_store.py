"""What is kept beside a checkpoint: readers find it at any time, it stays small, and a broken file harms nobody."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.errors import SetupError
from strandline.observe.history import SILENT_AFTER_SECONDS, History, JobState, find_jobs
from strandline.observe.metrics import fold
from strandline.observe.store import DAY, HOUR, MINUTE, SECOND, Keeping, Store
from strandline.observe.tables import FILE, AlarmLine, PaneLine
from strandline.observe.written import from_bytes, from_plain, to_bytes, to_plain
from tests.observe.made import START, batch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a job that has not run yet."""
    job = tmp_path / "scores"
    job.mkdir()
    (job / "strandline.json").write_text(json.dumps({"lineage": "abc", "stages": "scan, step, deliver"}))
    return job


def pane(number: int, key: str = '{"team":"red"}', start: int = START) -> PaneLine:
    said = '{"total":7}'
    return PaneLine(0, START + number, number, 0, key, start, start + MINUTE, "early", number, False, False, said)


def test_numbers_are_the_same_after_they_were_written_down() -> None:
    told = batch(7, budget=0.25, retries=2)
    assert from_bytes(to_bytes(told)) == told


def test_a_later_release_may_say_more_than_is_known_here() -> None:
    told = batch(7)
    assert from_plain({**to_plain(told), "weather": "fair"}) == told


def test_folding_adds_what_happened_and_keeps_how_things_stand() -> None:
    one, later = batch(1), batch(2, START + SECOND, lag_records=7)
    both = fold(one, later)
    assert both.counts == one.counts + later.counts
    assert both.counts.missing == 0
    assert (both.batch, both.batches, both.seconds, both.lag_records) == (2, 2, 2.0, 7)
    assert both.out == {"early": 40, "on_time": 20}
    assert both.steps[0].groups == (500, 490, 510, 480)
    assert both.latency["early"].total == 40
    assert both.took == pytest.approx(one.took)
    assert both.lateness.total == 2_000


def test_a_job_that_keeps_nothing_yet_is_known_by_its_folder(folder: Path) -> None:
    with History(folder) as history:
        job = history.job()
        assert (job.name, job.state, job.lineage) == ("scores", JobState.UNKNOWN, "abc")
        assert (history.latest(), history.points(), history.events(), history.panes()) == (None, [], [], [])


def test_a_folder_without_a_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there is no job"):
        History(tmp_path)


def test_a_reader_sees_each_batch_while_the_writer_goes_on(folder: Path) -> None:
    store = Store(folder, "scores per team")
    store.start(START)
    with History(folder) as history:
        for number in range(5):
            store.add(batch(number, START + number * SECOND))
            latest = history.latest()
            assert latest is not None
            assert latest.batch == number
        assert [point.batch for point in history.points()] == [0, 1, 2, 3, 4]
        assert [point.batch for point in history.points(since=START + 2 * SECOND)] == [3, 4]
        assert [each.batch for each in history.batches(limit=2)] == [3, 4]
        earlier = history.at(START + SECOND + 1)
        assert earlier is not None
        assert earlier.batch == 1
        assert history.job(START).name == "scores per team"
    store.close()


def test_batches_within_a_second_share_a_point(folder: Path) -> None:
    store = Store(folder)
    store.start(START)
    for number in range(30):
        store.add(batch(number, START + number * 100))
    store.close()
    with History(folder) as history:
        points = history.points()
        assert [point.batches for point in points] == [10, 10, 10]
        assert sum(point.read for point in points) == 30_000


def test_what_is_older_than_an_hour_becomes_coarse_and_nobody_is_lost(folder: Path) -> None:
    store = Store(folder)
    store.start(START)
    for number in range(150):
        store.add(batch(number, START + 4 * number * SECOND))
    store.tidy(START + 2 * HOUR)
    with History(folder) as history:
        points = history.points()
        assert 10 <= len(points) <= 11
        assert sum(point.read for point in points) == 150_000
        assert sum(point.batches for point in points) == 150
        store.tidy(START + 2 * DAY)
        assert history.points() == []
    store.close()


def test_a_day_of_fifty_jobs_takes_less_than_200_megabytes(folder: Path) -> None:
    """Two hours of a job that is as busy as it gets, as large as they are at most; then the rest of the day."""
    keeping = Keeping()
    store = Store(folder, keeping=keeping)
    store.start(START)
    lines = [pane(each, json.dumps({"team": f"team {each}"})) for each in range(keeping.panes)]
    many = 300
    for number in range(many):
        at = START + number * SECOND
        store.add(batch(number, at, clock=at - number % 977), lines if number == 0 else ())
    store.close()
    fixed = _size(folder) - many * _point_size(folder)
    fine, coarse = keeping.fine // keeping.finest, (DAY - keeping.fine) // keeping.coarse
    assert 50 * (fixed + (fine + coarse) * _point_size(folder)) < 200e6


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.glob(FILE + "*"))


def _point_size(folder: Path) -> float:
    """Bytes of the file for each point."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        (points,) = connection.execute("SELECT count(*) FROM points").fetchone()
        (size,) = connection.execute("SELECT sum(pgsize) FROM dbstat WHERE name = 'points'").fetchone()
    return float(size / points)


def test_panes_are_a_ring(folder: Path) -> None:
    store = Store(folder, keeping=Keeping(panes=3))
    store.start(START)
    for number in range(5):
        store.add(batch(number, START + number * SECOND), [pane(number)])
    store.close()
    with History(folder) as history:
        assert [each.pane for each in history.panes()] == [2, 3, 4]


def test_panes_are_found_by_key_and_window(folder: Path) -> None:
    store = Store(folder)
    store.start(START)
    red, blue = '{"team":"Red"}', '{"team":"blue"}'
    store.add(batch(), [pane(0, red), pane(1, blue), pane(2, red, START + MINUTE), pane(3, red)])
    store.close()
    with History(folder) as history:
        assert [each.pane for each in history.panes("red")] == [0, 2, 3]
        assert [each.pane for each in history.panes("red", START)] == [0, 3]
        first, *_ = history.panes()
        assert [each.pane for each in history.panes(after=first.id, limit=2)] == [2, 3]
        assert first.taken_back is False


def test_panes_can_be_left_out(folder: Path) -> None:
    store = Store(folder, keeping=Keeping(panes=0))
    store.start(START)
    store.add(batch(), [pane(0)])
    store.close()
    assert History(folder).panes() == []


def test_a_job_that_gives_no_sign_of_life_is_dead(folder: Path) -> None:
    store = Store(folder)
    store.start(START)
    store.alive(START, JobState.RUNNING)
    with History(folder) as history:
        assert history.job(START + SECOND).state is JobState.RUNNING
        silent = START + int(SILENT_AFTER_SECONDS * SECOND) + 1
        assert history.job(silent).state is JobState.DEAD
        store.alive(silent, JobState.STOPPED)
        assert history.job(silent + DAY).state is JobState.STOPPED
    store.close()


def test_a_job_whose_process_is_gone_is_dead_at_once(folder: Path) -> None:
    store = Store(folder)
    store.start(START)
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute("UPDATE runs SET pid = ?", (2**22 + 1,))  # above every process id of Linux
        connection.commit()
    assert History(folder).job(START).state is JobState.DEAD
    store.close()


def test_restarts_and_what_happened_are_told(folder: Path) -> None:
    for number in range(3):
        store = Store(folder)
        store.start(START + number * MINUTE)
        store.event(START + number * MINUTE + 1, "failed", "the sink is gone")
        store.alive(START + number * MINUTE + 1, JobState.FAILED, "the sink is gone")
        store.close()
    with History(folder) as history:
        job = history.job()
        assert (job.run, job.restarts, job.state, job.problem) == (3, 2, JobState.FAILED, "the sink is gone")
        assert [event.kind for event in history.events()] == ["started", "failed"] * 3
        assert history.starts(since=START) == [START + MINUTE, START + 2 * MINUTE]


def test_alarms_are_kept_those_that_ring_first(folder: Path) -> None:
    store = Store(folder)
    quiet = AlarmLine("late rate", "ok", START, "", "", 0)
    store.alarms([quiet, AlarmLine("lag", "firing", START, "lag grows", "add cores", 3)])
    store.alarms([replace(quiet, state="pending")])
    store.close()
    assert [(each.rule, each.state) for each in History(folder).alarms()] == [
        ("lag", "firing"),
        ("late rate", "pending"),
    ]


def test_a_broken_file_is_set_aside(folder: Path) -> None:
    (folder / FILE).write_bytes(b"this is no database at all" * 100)
    assert History(folder).latest() is None
    store = Store(folder)
    store.start(START)
    store.add(batch(3))
    store.close()
    latest = History(folder).latest()
    assert latest is not None
    assert latest.batch == 3
    assert (folder / FILE).with_suffix(".old").exists()


def test_jobs_are_found_in_the_folders_around_them(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert find_jobs([tmp_path, folder]) == [folder]
    assert find_jobs([tmp_path / "nowhere"]) == []
