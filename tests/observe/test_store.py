"""The metrics store: readable at any time, bounded, and harmless if its file is corrupt."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from strandline.errors import SetupError
from strandline.model.counts import Counts
from strandline.model.histograms import of_times
from strandline.observe.metrics.encoding import from_bytes, from_plain, to_bytes, to_plain
from strandline.observe.metrics.history import SILENT_AFTER_SECONDS, History, JobState, find_jobs
from strandline.observe.metrics.metrics import STAGES, BatchMetrics, HotKey, StepMetrics, fold
from strandline.observe.metrics.store import DAY, HOUR, MINUTE, SECOND, Retention, Store
from strandline.observe.metrics.tables import FILE, AlarmLine, PaneLine
from tests.observe.made import START, batch, partition


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a job that has not run yet."""
    job = tmp_path / "scores"
    job.mkdir()
    (job / "strandline.json").write_text(json.dumps({"lineage": "abc", "stages": "scan, step, deliver"}))
    return job


def pane(number: int, key: str = '{"team":"red"}', start: int = START) -> PaneLine:
    content = '{"total":7}'
    return PaneLine(0, START + number, number, 0, key, start, start + MINUTE, "early", number, False, False, content)


def test_numbers_survive_a_round_trip() -> None:
    metrics = batch(7, budget=0.25, retries=2)
    assert from_bytes(to_bytes(metrics)) == metrics


def test_fields_of_later_releases_are_ignored() -> None:
    metrics = batch(7)
    assert from_plain({**to_plain(metrics), "weather": "fair"}) == metrics


def test_folding_adds_amounts_and_keeps_the_latest_states() -> None:
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


def test_a_job_without_metrics_is_identified_by_its_folder(folder: Path) -> None:
    with History(folder) as history:
        job = history.job()
        assert (job.name, job.state, job.lineage) == ("scores", JobState.UNKNOWN, "abc")
        assert (history.latest(), history.points(), history.events(), history.panes()) == (None, [], [], [])


def test_a_folder_without_a_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there is no job"):
        History(tmp_path)


def test_a_reader_sees_each_batch_while_the_writer_continues(folder: Path) -> None:
    store = Store(folder, "scores per team")
    store.start(START)
    with History(folder) as history:
        for number in range(5):
            store.add(batch(number, START + 2 * number * SECOND))
            latest = history.latest()
            assert latest is not None
            assert (latest.batch, latest.partitions) == (number, batch(number, latest.at).partitions)
        assert [point.batch for point in history.points()] == [0, 1, 2, 3, 4]
        assert [point.batch for point in history.points(since=START + 4 * SECOND)] == [3, 4]
        assert [each.batch for each in history.batches(limit=2)] == [3, 4]
        earlier = history.at(START + 2 * SECOND + 1)
        assert earlier is not None
        assert earlier.batch == 1
        assert history.job(START).name == "scores per team"
    store.close()


def test_batches_within_two_seconds_share_a_point(folder: Path) -> None:
    store = Store(folder)
    store.start(START)
    for number in range(40):
        store.add(batch(number, START + number * 100))
    store.close()
    with History(folder) as history:
        points = history.points()
        assert [point.batches for point in points] == [20, 20]
        assert sum(point.read for point in points) == 40_000


def test_points_older_than_an_hour_are_folded_and_no_element_is_lost(folder: Path) -> None:
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


@pytest.mark.slow
def test_a_day_of_fifty_jobs_takes_less_than_200_megabytes(folder: Path) -> None:
    """Compute the size of a whole day from that of a point, for a job with a batch a second and no two alike."""
    retention = Retention()
    store = Store(folder, retention=retention)
    store.start(START)
    lines = [pane(each, json.dumps({"team": f"team {each}"})) for each in range(retention.panes)]
    many, random = 300, Random(1)
    for number in range(many):
        at = START + 2 * number * SECOND
        store.add(busy(number, at, random), lines if number == 0 else ())
    store.close()
    with closing(sqlite3.connect(folder / FILE)) as connection:
        sizes = dict(connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"))
        (wholes,) = connection.execute("SELECT count(*) FROM wholes").fetchone()
    hour, minutes = retention.fine, (DAY - retention.fine) // retention.coarse
    points = (hour // retention.finest + minutes) * sizes["points"] / many
    others = (hour // retention.whole + (DAY - hour) // retention.coarse_whole) * sizes["wholes"] / wholes
    rest = sum(each.stat().st_size for each in folder.glob(FILE + "*")) - sizes["points"] - sizes["wholes"]
    assert 50 * (points + others + rest) < 200e6


def busy(number: int, at: int, random: Random) -> BatchMetrics:
    """A batch of a job with sixteen partitions, two steps and ten hot keys."""
    parts = tuple(
        partition(
            f"scores-{each}", at, event_time=at - random.randrange(5_000), watermark=at - random.randrange(9_000),
            lag_records=random.randrange(9_999), lag_seconds=random.random(),
        )
        for each in range(16)
    )  # fmt: skip
    times = {name: of_times([random.lognormvariate(8, 1) for _ in range(200)]) for name in ("early", "on_time", "late")}
    step = StepMetrics(
        "step 1", at - random.randrange(9_000), at - random.randrange(9_000), random.randrange(99_999),
        random.randrange(9_999_999), Counts(random.randrange(9_999), random.randrange(9_999)),
        tuple(random.randrange(9_999) for _ in range(8)),
    )  # fmt: skip
    hot = tuple(HotKey("step 1", f'{{"team":"team {each}"}}', random.randrange(9_999), 0.1) for each in range(10))
    return batch(
        number, at, clock=at - random.randrange(900), partitions=parts, partition_count=16, latency=times, hot=hot,
        steps=(step, replace(step, name="step 2")), lateness=of_times(random.lognormvariate(6, 2) for _ in range(500)),
        stages={stage: random.random() for stage in STAGES},
        out={"early": random.randrange(999), "on_time": random.randrange(999)},
        counts=Counts(random.randrange(99_999), random.randrange(99_999), random.randrange(999), random.randrange(99)),
    )  # fmt: skip


def test_partitions_and_hot_keys_are_kept_every_ten_seconds_and_for_the_newest_point(folder: Path) -> None:
    store = Store(folder)
    store.start(START)
    for number in range(12):
        store.add(batch(number, START + 2 * number * SECOND))
    with History(folder) as history:
        assert history.latest() == batch(11, START + 22 * SECOND)
        assert [each.batch for each in history.batches() if each.partitions and each.hot] == [11]
        then = history.at(START + 12 * SECOND)
        assert then is not None
        assert (then.batch, then.partitions) == (6, batch(9, START + 18 * SECOND).partitions)
        store.tidy(START + 2 * HOUR)
        last = history.latest()
        assert last is not None
        assert (last.batch, last.batches, len(last.partitions)) == (11, 12, 4)
    store.close()


def test_numbers_of_another_version_are_refused_by_name(folder: Path) -> None:
    store = Store(folder)
    store.close()
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute("UPDATE about SET value = '1' WHERE name = 'version'")
        connection.commit()
    with pytest.raises(SetupError, match="written by another version"):
        History(folder).latest()
    Store(folder).close()
    assert History(folder).latest() is None


def test_panes_are_a_ring_buffer(folder: Path) -> None:
    store = Store(folder, retention=Retention(panes=3))
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


def test_pane_recording_can_be_disabled(folder: Path) -> None:
    store = Store(folder, retention=Retention(panes=0))
    store.start(START)
    store.add(batch(), [pane(0)])
    store.close()
    assert History(folder).panes() == []


def test_a_job_without_a_heartbeat_is_dead(folder: Path) -> None:
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


def test_restarts_and_events_are_listed(folder: Path) -> None:
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


def test_alarms_are_stored_and_listed_firing_ones_first(folder: Path) -> None:
    store = Store(folder)
    quiet = AlarmLine("late rate", "ok", START, "", "", 0)
    store.alarms([quiet, AlarmLine("lag", "firing", START, "lag grows", "add cores", 3)])
    store.alarms([replace(quiet, state="pending")])
    store.close()
    assert [(each.rule, each.state) for each in History(folder).alarms()] == [
        ("lag", "firing"),
        ("late rate", "pending"),
    ]


def test_a_corrupt_file_is_moved_aside(folder: Path) -> None:
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


def test_a_clock_that_is_set_back_does_not_fold_the_points_after_it(folder: Path) -> None:
    """Ten batches of ten seconds each, the last five after the clock was set back an hour."""
    store = Store(folder, "scores")
    store.start(START)
    times = [START + 10 * SECOND * number - (60 * MINUTE if number >= 5 else 0) for number in range(10)]
    for number, at in enumerate(times):
        store.add(batch(number, at))
    store.add(batch(10, START + 100 * SECOND))  # the clock is right again
    store.close()
    found = [point.at for point in History(folder).points()]
    assert found == sorted(set(found))
    assert [each - START for each in found] == [10 * SECOND * number for number in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10)]
