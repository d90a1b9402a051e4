"""The observer of a job's numbers: off the job's path, complete at every end, and harmless on errors."""

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import RunError
from strandline.observe.job_requests import STOP, ask, is_asked
from strandline.observe.metrics.history import History, JobState
from strandline.observe.metrics.observer import Recorder
from strandline.observe.metrics.tables import FILE
from strandline.spark.progress import State, Status
from tests.observe.test_measure import NOW, delivered, panes

PATIENCE = 60


class Query:
    """A query with configurable progress."""

    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return self.recentProgress[-1] if self.recentProgress else None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "strandline.json").write_text(json.dumps({"lineage": "abc"}))
    return tmp_path


def recorder(folder: Path, stop: Callable[[], None] = lambda: None, query: Any = None) -> Recorder:
    started = Recorder(folder, "scores", {0: ("team",)})
    started.started(query or Query(), lambda: Status(State.RUNNING, 3), stop)
    return started


def end(one: Recorder, state: State = State.STOPPED, problem: str = "") -> None:
    one.ended(Status(state, 3, problem))


def test_every_delivered_batch_is_stored_when_the_job_has_ended(folder: Path) -> None:
    one = recorder(folder)
    for number in range(5):
        batch = delivered(panes([{}]))
        one.delivered(replace(batch, batch=number, at=NOW + 2_000 * number), 0.1 * number)
    end(one)
    end(one, State.FAILED, "what comes later does not count")
    with History(folder) as history:
        assert [each.batch for each in history.batches()] == [0, 1, 2, 3, 4]
        assert history.batches()[-1].budget == pytest.approx(0.4)
        assert history.batches()[-1].seconds == pytest.approx(2.0)
        assert len(history.panes()) == 5
        assert history.job().state is JobState.STOPPED


def test_sparks_progress_of_a_batch_is_waited_for(folder: Path) -> None:
    query = Query()
    query.recentProgress = [{"batchId": number, "durationMs": {"walCommit": 10 * number}} for number in (2, 3, 4)]
    one = recorder(folder, query=query)
    one.delivered(delivered(), None)
    end(one)
    latest = History(folder).latest()
    assert latest is not None
    assert latest.stages["commit"] == pytest.approx(0.03)


def test_waiting_for_a_sink_is_counted(folder: Path) -> None:
    one = recorder(folder)
    for _ in range(3):
        one.waits(RunError("the sink is away"))
    one.waits(None)
    one.delivered(delivered(), None)
    end(one)
    latest = History(folder).latest()
    assert latest is not None
    assert latest.retries == 3


def test_a_failure_is_recorded_with_its_reason(folder: Path) -> None:
    end(recorder(folder), State.FAILED, "the disk is full")
    with History(folder) as history:
        job = history.job()
        assert (job.state, job.problem) == (JobState.FAILED, "the disk is full")
        assert history.events()[-1].text == "the disk is full"


def test_a_job_that_could_not_start_is_recorded_as_failed(folder: Path) -> None:
    Recorder(folder, "scores", {}).failed("there is no Java")
    with History(folder) as history:
        assert (history.job().state, history.job().problem) == (JobState.FAILED, "there is no Java")


def test_a_job_is_stopped_when_its_folder_asks_for_it(folder: Path) -> None:
    stopped = threading.Event()
    one = recorder(folder, stopped.set)
    ask(folder, STOP)
    assert stopped.wait(PATIENCE)
    assert not is_asked(folder, STOP)
    end(one)


def test_a_stop_request_from_before_the_start_is_ignored(folder: Path) -> None:
    ask(folder, STOP)
    one = recorder(folder, lambda: pytest.fail("it was stopped"))
    assert not is_asked(folder, STOP)
    end(one)


def test_a_broken_store_is_logged_once_and_does_not_affect_the_job(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / FILE).mkdir()
    with caplog.at_level(logging.WARNING, "strandline"):
        one = recorder(folder)
        for number in range(3):
            one.delivered(replace(delivered(panes([{}])), batch=number), None)
        end(one)
    assert sum("(start)" in each.getMessage() for each in caplog.records) == 1


def test_an_exporter_that_raises_does_not_affect_the_job(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def export(self, *_: Any) -> None:
            raise OSError("no space left")

        def close(self) -> None:
            raise OSError("no space left")

    one = Recorder(folder, "scores", {0: ("team",)}, exporters=lambda: [Broken()])
    with caplog.at_level(logging.WARNING, "strandline"):
        one.started(Query(), lambda: Status(State.RUNNING, 3), lambda: None)
        for number in range(3):
            one.delivered(replace(delivered(), batch=number, at=NOW + 2_000 * number), None)
        end(one)
    assert sum("(Broken)" in each.getMessage() for each in caplog.records) == 1
    assert len(History(folder).batches()) == 3


def test_batches_that_arrive_faster_than_they_are_processed_are_still_counted(folder: Path) -> None:
    one = recorder(folder)
    for number in range(200):
        one.delivered(replace(delivered(panes([{}])), batch=number, at=NOW + number), None)
    end(one)
    assert sum(each.counts.read for each in History(folder).batches()) == 2_000


def test_no_thread_is_left(folder: Path) -> None:
    one = recorder(folder)
    end(one)
    assert one._thread is not None
    assert not one._thread.is_alive()
