"""Properties of a trigger known in advance: validity, whether it may finish, its Python code."""

from collections.abc import Callable
from typing import Any

import pytest

from strandline.errors import InvalidTrigger
from strandline.model.elements import Duration
from strandline.model.triggers import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    FirstOf,
    Repeatedly,
    Trigger,
    after_count,
    after_event_time,
    after_processing_time,
    after_watermark,
    all_of,
    can_fire,
    continued,
    describe,
    every,
    finishes_by_watermark_only,
    first_of,
    in_sequence,
    may_finish,
    never,
    or_finally,
    parts_of,
    repeatedly,
    when,
)

ONE = after_count(1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: after_count(0), "after_count(0) would fire without elements"),
        (lambda: after_processing_time("-5s"), "a delay of -5s lies in the past"),
        (lambda: after_processing_time(aligned="0s"), "a period of 0s has no boundaries"),
        (lambda: after_event_time("0s"), "a period of 0s has no boundaries"),
        (first_of, "first_of has no parts"),
        (all_of, "all_of has no parts"),
        (in_sequence, "in_sequence has no parts"),
    ],
)
def test_an_invalid_trigger_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidTrigger) as error:
        build()
    assert message in error.value.message
    assert error.value.hint


def test_early_and_late_repeat_by_themselves() -> None:
    assert after_watermark(early=every("30s"), late=repeatedly(ONE)) == AfterWatermark(
        AfterProcessingTime(Duration(30_000)), AfterCount(1)
    )


@pytest.mark.parametrize(
    ("trigger", "finishes"),
    [
        (after_watermark(), True),
        (after_watermark(late=ONE), False),
        (ONE, True),
        (never(), False),
        (repeatedly(ONE), False),
        (first_of(never(), ONE), True),
        (first_of(never()), False),
        (all_of(never(), ONE), False),
        (all_of(after_watermark(), ONE), True),
        (in_sequence(ONE, repeatedly(ONE)), False),
        (in_sequence(ONE, after_watermark()), True),
        (or_finally(repeatedly(ONE), never()), False),
        (or_finally(repeatedly(ONE), after_watermark()), True),
    ],
)
def test_whether_a_trigger_may_close_a_window_early(trigger: Trigger, finishes: bool) -> None:
    assert may_finish(trigger) is finishes


@pytest.mark.parametrize(
    ("trigger", "only"),
    [
        (after_watermark(early=ONE), True),
        (ONE, False),
        (first_of(after_watermark(), never()), True),
        (first_of(after_watermark(early=ONE)), False),
        (all_of(after_watermark(), ONE), True),
        (all_of(repeatedly(ONE), ONE), False),
        (in_sequence(ONE, after_watermark()), True),
        (in_sequence(ONE, ONE), False),
        (or_finally(after_watermark(), in_sequence(after_watermark(), ONE)), False),
        (or_finally(after_watermark(), all_of(ONE, never())), True),
        (or_finally(after_watermark(), or_finally(after_watermark(), first_of(never()))), True),
        (or_finally(repeatedly(ONE), ONE), False),
        (never(), True),
    ],
)
def test_whether_only_the_watermark_can_close_a_window(trigger: Trigger, only: bool) -> None:
    assert finishes_by_watermark_only(trigger) is only


@pytest.mark.parametrize(
    ("trigger", "fires"),
    [
        (never(), False),
        (repeatedly(never()), False),
        (first_of(never(), ONE), True),
        (all_of(never(), ONE), False),
        (in_sequence(never(), ONE), False),
        (or_finally(never(), never()), False),
        (or_finally(never(), ONE), True),
        (after_watermark(), True),
    ],
)
def test_whether_a_trigger_can_fire(trigger: Trigger, fires: bool) -> None:
    assert can_fire(trigger) is fires


def test_a_chained_step_keeps_only_the_watermark_part() -> None:
    waiting = after_processing_time("5s")
    assert continued(after_watermark(early=waiting, late=after_count(9))) == after_watermark(early=ONE, late=ONE)
    assert continued(repeatedly(all_of(waiting, never()))) == repeatedly(all_of(ONE, never()))
    assert continued(in_sequence(waiting, after_watermark())) == Repeatedly(FirstOf((ONE, AfterWatermark())))
    assert continued(or_finally(first_of(waiting), when("n > 1"))) == or_finally(first_of(ONE), ONE)


@pytest.mark.parametrize(
    "text",
    [
        "after_watermark()",
        'after_watermark(early=after_processing_time("30s"), late=after_count(1))',
        'after_processing_time("0s", aligned="1m", offset="10s")',
        'after_event_time("10s", offset="3s")',
        'when("total > 100")',
        "never()",
        "repeatedly(first_of(after_count(3), never()))",
        "all_of(after_count(1), in_sequence(after_count(2), after_count(3)))",
        "or_finally(repeatedly(after_count(1)), after_watermark())",
    ],
)
def test_a_trigger_is_described_as_it_is_written(text: str) -> None:
    written: Trigger = eval(text)
    assert describe(written) == text


def test_parts_keep_their_order() -> None:
    assert parts_of(after_watermark(early=ONE, late=never())) == (ONE, never())
    assert parts_of(or_finally(ONE, never())) == (ONE, never())
    assert parts_of(ONE) == ()
