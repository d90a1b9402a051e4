"""What a job waits for: since when, how often it was tried, and which of several waits is told."""

import logging

import pytest

from strandline.errors import SinkUnavailable
from strandline.ports.waiting import Waiting, Waits
from strandline.spark.delivery.deliver import Retry

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
