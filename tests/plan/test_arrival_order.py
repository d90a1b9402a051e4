"""Which pipelines depend on arrival order, and why."""

from typing import Any

import pytest

import strandline as sl
from strandline.plan.arrival_order import order_dependence
from strandline.plan.compile import to_stages
from tests.plan.endpoints import PaperSink, scores


def reason_of(change: Any, *, window: Any = None, clock: bool = False) -> str | None:
    read = scores()
    timed = read.processing_time() if clock else read.event_time("at", sl.bounded(seconds=1))
    keyed = change(timed.key_by("team").window(window or sl.tumbling(minutes=1)))
    return order_dependence(to_stages(keyed.aggregate(total=sl.sum("score")).write(PaperSink()).root))


EARLY = sl.after_watermark(early=sl.after_count(5), late=sl.after_count(1))


@pytest.mark.parametrize(
    ("change", "window", "clock", "reason"),
    [
        (lambda keyed: keyed, None, False, None),
        (lambda keyed: keyed.trigger(sl.after_watermark(late=sl.after_count(1))), None, False, None),
        (lambda keyed: keyed.trigger(EARLY).accumulate(sl.retracting), None, False, None),
        (lambda keyed: keyed.trigger(EARLY).accumulate(sl.accumulating), sl.session(seconds=3), False, "sessions grow"),
        (lambda keyed: keyed.trigger(EARLY), None, False, "splits the elements of a window"),
        (lambda keyed: keyed.trigger(sl.repeatedly(sl.after_count(3))), None, False, "that have arrived so far"),
        (lambda keyed: keyed, sl.count_window(3), False, "in arrival order"),
        (lambda keyed: keyed, None, True, "processing time"),
        (lambda keyed: keyed.evict(sl.keep_last(2)), None, False, "an evictor"),
        (lambda keyed: keyed.time_to_live("1h"), sl.everything(), False, "a time to live"),
    ],
)
def test_a_pipeline_reports_why_it_depends_on_arrival_order(
    change: Any, window: Any, clock: bool, reason: str | None
) -> None:
    found = reason_of(change, window=window, clock=clock)
    assert (found is None) if reason is None else (found is not None and reason in found)


def test_elements_without_a_keyed_step_are_read_in_micro_batches() -> None:
    assert order_dependence(to_stages(scores().where("score > 3").write(PaperSink()).root)) is not None
