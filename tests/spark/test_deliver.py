"""One batch to one sink, in the order each delivery asks for, also while it is away; and where a job can be killed."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from pyspark.errors import PySparkException

from strandline.errors import RegistryDown, RunError, SinkError, SinkUnavailable
from strandline.kernel.output import Output
from strandline.plan.endpoints import Delivery
from strandline.ports.crash_points import POINTS
from strandline.ports.ledger import LedgerEntry, Recorded, Written
from strandline.spark.delivery.deliver import Retry, deliver, raised_by_a_task

ENTRY = LedgerEntry("mine", 1, 0, "range")


@dataclass
class Scripted:
    """A sink that tells what it was asked to do, and answers as it is told to."""

    answers: Iterator[Written | Exception]
    asked: list[str] = field(default_factory=list)

    def claim(self, lineage: str) -> int:
        return 1

    def latest(self, lineage: str) -> Recorded | None:
        return None

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        return self._answer("commit")

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        return self._answer("mark")

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        return self._answer("write")

    def close(self) -> None:
        pass

    def _answer(self, asked: str) -> Written:
        self.asked.append(asked)
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def delivered(
    delivery: Delivery, *answers: Written | Exception, retry: Retry | None = None
) -> tuple[Written | None, list[str]]:
    sink = Scripted(iter(answers))
    return deliver(sink, delivery, Output(), ENTRY, retry or Retry(shortest=0)), sink.asked


AWAY = SinkUnavailable("the sink is away")
THERE = Written(fresh=False)


def test_exactly_once_is_one_act() -> None:
    assert delivered(Delivery.EXACTLY_ONCE, Written(refused=2)) == (Written(refused=2), ["commit"])
    assert delivered(Delivery.EXACTLY_ONCE, THERE) == (THERE, ["commit"])


def test_at_least_once_writes_whatever_the_ledger_says() -> None:
    assert delivered(Delivery.AT_LEAST_ONCE, Written()) == (Written(), ["write"])


def test_at_most_once_marks_first_and_writes_only_what_was_new() -> None:
    assert delivered(Delivery.AT_MOST_ONCE, Written(), Written(refused=1)) == (Written(refused=1), ["mark", "write"])
    assert delivered(Delivery.AT_MOST_ONCE, THERE) == (THERE, ["mark"])


@pytest.mark.parametrize("delivery", Delivery)
def test_a_batch_waits_for_a_sink_that_is_away(delivery: Delivery) -> None:
    reports: list[RunError | None] = []
    written, asked = delivered(
        delivery, AWAY, AWAY, Written(), Written(), retry=Retry(report=reports.append, shortest=0)
    )
    assert written == Written()
    assert asked[:2] == asked[1:3]
    assert reports == [AWAY, AWAY, None]


def test_waits_grow_up_to_a_limit() -> None:
    waited: list[float] = []

    class Clock(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0)
            return False

    retry = Retry(stopping=Clock(), shortest=1, longest=5)
    delivered(Delivery.EXACTLY_ONCE, *[AWAY] * 5, Written(), retry=retry)
    assert waited == [1, 2, 4, 5, 5]


def test_a_job_that_is_stopped_does_not_wait() -> None:
    retry = Retry(shortest=60)
    retry.stopping.set()
    with pytest.raises(SinkUnavailable):
        delivered(Delivery.EXACTLY_ONCE, AWAY, retry=retry)


@pytest.mark.parametrize("delivery", Delivery)
def test_a_fault_that_will_not_pass_ends_it_at_once(delivery: Delivery) -> None:
    with pytest.raises(SinkError, match="no such table"):
        delivered(delivery, SinkError("no such table"))


def test_rows_that_may_have_arrived_are_not_sent_twice_where_once_is_the_most() -> None:
    assert delivered(Delivery.AT_MOST_ONCE, Written(), AWAY) == (None, ["mark", "write"])


def test_a_batch_waits_for_a_registry_that_a_task_could_not_reach_and_for_nothing_else() -> None:
    trace = (
        "Job aborted\n  File worker.py\nstrandline.errors.RegistryDown: the registry at http://a is out of reach\n\tat"
    )
    down = raised_by_a_task(PySparkException(trace))
    assert isinstance(down, RegistryDown)
    assert str(down) == "the registry at http://a is out of reach"
    other = PySparkException("ValueError: no")
    assert raised_by_a_task(other) is other
    answers: list[Exception | str] = [down, "played"]
    reports: list[RunError | None] = []

    def play() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert Retry(report=reports.append, shortest=0).until_done(play) == "played"
    assert reports == [down, None]


PASSING = f"""
from strandline.ports.crash_points import crash_point
for turn in range(1, 4):
    for name in {POINTS}:
        print(turn, name, flush=True)
        crash_point(name)
"""


@pytest.mark.parametrize(("asked", "last", "code"), [("C9:2", "2 C9", -signal.SIGKILL), (None, f"3 {POINTS[-1]}", 0)])
def test_a_job_dies_at_the_point_it_was_asked_to_and_at_no_other(asked: str | None, last: str, code: int) -> None:
    environment = {**os.environ, **({"STRANDLINE_CRASH": asked} if asked else {})}
    command = [sys.executable, "-c", PASSING]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, start_new_session=True, check=False)
    assert (ran.stdout.splitlines()[-1], ran.returncode) == (last, code)
