"""What a job waits for: since when, how often it was tried, and which of several waits is told."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint
from strandline.connectors.kafka import Kafka
from strandline.errors import JobDrained, RunError, SinkUnavailable, SourceUnavailable
from strandline.kernel.output import Output
from strandline.kernel.watermarks import FOREVER, Progress
from strandline.plan.compile import to_stages
from strandline.plan.stages import Stages
from strandline.ports.sources import EndReader
from strandline.ports.waiting import Waiting, Waits
from strandline.spark.delivery.deliver import Delivered, Retry
from strandline.spark.job import Job
from strandline.spark.progress import State
from strandline.spark.resume import refuse_unread
from strandline.spark.service_monitor import ServiceMonitor

START = 1_700_000_000_000


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


def test_a_wait_tells_what_since_when_how_often_and_the_next_try() -> None:
    clock, told = Clock(), list[Waiting | None]()
    waits = Waits(told.append, clock)
    waits.failed("the broker", "no answer", next_in=1)
    clock.now += 3_000
    waits.failed("the broker", "connection refused", next_in=2)
    assert waits.longest == Waiting("the broker", START, 2, START + 5_000, "connection refused")
    assert str(waits.longest) == (
        "connection refused (waiting for the broker since 22:13:20 UTC, 2 tries, next try at 22:13:25 UTC)"
    )
    waits.answered("the broker")
    assert told[-1] is None
    assert waits.longest is None


def test_the_wait_that_began_first_is_told_until_it_ends() -> None:
    clock = Clock()
    waits = Waits(clock=clock)
    waits.failed("a sink", "away")
    clock.now += 1
    waits.failed("the broker", "away")
    assert waits.longest is not None
    assert waits.longest.what == "a sink"
    waits.answered("a sink")
    assert waits.longest is not None
    assert waits.longest.what == "the broker"
    waits.cleared()
    assert waits.longest is None


def test_the_log_has_the_beginning_and_the_end_of_a_wait_and_not_every_try(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    waits = Waits(clock=clock)
    with caplog.at_level(logging.WARNING, "strandline"):
        for _ in range(5):
            waits.failed("the broker", "away")
            clock.now += 1_500
        waits.answered("the broker")
        waits.answered("the broker")
    assert [each.getMessage() for each in caplog.records] == [
        "the job waits for the broker: away",
        "the job no longer waits for the broker, after 7.5 s",
    ]


def test_a_retry_reports_its_pause_as_the_next_try_and_clears_the_wait() -> None:
    answers: list[Exception | str] = [SinkUnavailable("away"), SinkUnavailable("still away"), "done"]
    seen: list[Waiting | None] = []
    waits = Waits(seen.append)

    def act() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert Retry(shortest=0.01, waits=waits).until_done(act, "postgres('totals')") == "done"
    assert [(each.what, each.tries, each.reason) for each in seen if each is not None] == [
        ("postgres('totals')", 1, "away"),
        ("postgres('totals')", 2, "still away"),
    ]
    assert all(each.next_try is not None for each in seen if each is not None)
    assert seen[-1] is None


@dataclass
class Ends:
    """A client of a broker that answers as it is told to."""

    found: Mapping[str, int] | None

    def ends(self) -> Mapping[str, int]:
        if self.found is None:
            raise SourceUnavailable("Kafka at b:1 does not respond")
        return self.found

    def ends_at(self, ms: int) -> Mapping[str, int]:
        return dict.fromkeys(self.ends(), 3 if ms < START else 7)


def reading(monkeypatch: pytest.MonkeyPatch, reader: EndReader) -> Stages:
    monkeypatch.setattr(Kafka, "end_reader", lambda _: reader)
    source = sl.kafka("scores", servers="b:1", value=sl.json("team string"))
    return to_stages(sl.read(source).write(sl.discard()).root)


def drained(folder: Path, offset: str) -> Checkpoint:
    (folder / "spark" / "offsets").mkdir(parents=True)
    (folder / "spark" / "commits").mkdir()
    (folder / "spark" / "commits" / "0").touch()
    # Spark may have planned another batch before the job was stopped.
    for batch, at in enumerate((offset, '{"scores": {"0": 6, "1": 9}}')):
        entry = folder / "spark" / "offsets" / str(batch)
        entry.write_text(f'v1\n{{"batchTimestampMs": 1}}\n{at}\n{{}}')
    return Checkpoint(folder)


def test_a_drained_job_with_unread_records_is_refused_with_the_way_to_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = drained(tmp_path, '{"scores": {"0": 4, "1": 9}}')
    with pytest.raises(JobDrained, match=r"was drained, and 6 records of kafka\(scores\) are unread") as refused:
        refuse_unread(home, reading(monkeypatch, Ends({"scores-0": 10, "scores-1": 9})))
    assert 'starting={"scores": {"0": 4, "1": 9}}' in refused.value.hint


@pytest.mark.parametrize("ends", [{"scores-0": 4, "scores-1": 9}, None])
def test_a_drained_job_is_complete_if_nothing_is_left_or_that_cannot_be_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: Mapping[str, int] | None
) -> None:
    refuse_unread(drained(tmp_path, '{"scores": {"0": 4, "1": 9}}'), reading(monkeypatch, Ends(ends)))


def eventually(fact: Any) -> None:
    patience = threading.Event()
    for _ in range(600):
        if fact():
            return
        patience.wait(0.05)
    pytest.fail("it did not happen")


def test_a_broker_is_asked_beside_the_batches_and_its_ends_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, waits = Ends({"scores-0": 10}), Waits()
    monitor = ServiceMonitor(reading(monkeypatch, reader), waits, every=0.01)
    try:
        eventually(lambda: monitor.ends(0).now)
        assert monitor.ends(0).now == {"scores-0": 10}
        assert [end for _, end in monitor.ends(0).earlier["scores-0"]][-1] == 7
        reader.found = None
        eventually(lambda: waits.longest is not None and waits.longest.tries > 2)
        assert waits.longest is not None
        assert (waits.longest.what, waits.longest.reason) == ("kafka(scores)", "Kafka at b:1 does not respond")
        reader.found = {"scores-0": 12}
        eventually(lambda: waits.longest is None)
        eventually(lambda: monitor.ends(0).now == {"scores-0": 12})
    finally:
        monitor.stop()


def test_a_start_that_takes_too_long_fails_with_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(Checkpoint(tmp_path), start_within=sl.Duration.parse("100ms"))
    job.begin(reading(monkeypatch, Ends(None)))
    eventually(lambda: job.status.state is State.FAILED)
    assert job.retry.stopping.is_set()
    found = job.abandon(SinkUnavailable("what the start was busy with"))
    assert isinstance(found, RunError)
    assert "the job did not start within 0.1 s (Kafka at b:1 does not respond (waiting for kafka(scores)" in str(found)


def test_no_batch_runs_after_every_window_has_closed(tmp_path: Path) -> None:
    job = Job(Checkpoint(tmp_path))
    job.delivered(Delivered(0, Output(progress=Progress(5)), {}, repeated=False))
    job.refuse_batch_after_end()
    job.delivered(Delivered(1, Output(progress=Progress(FOREVER)), {}, repeated=False))
    with pytest.raises(RuntimeError, match="has ended"):
        job.refuse_batch_after_end()
    assert job.retry.stopping.is_set()
