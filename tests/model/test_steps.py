"""A step whose parts do not fit is refused when it is made; one that is easily not meant is cautioned about."""

from collections.abc import Callable
from typing import Any

import pytest

from strandline.errors import InvalidAggregate, InvalidStep, InvalidTrigger, PlanError
from strandline.model.aggregates import Sum, approx_count_distinct, columns_of, count, quantile, top_k
from strandline.model.elements import Duration
from strandline.model.evictors import KeepLast, keep_delta, keep_last, keep_within
from strandline.model.panes import Accumulation, Lateness
from strandline.model.steps import WindowedStep, cautions
from strandline.model.triggers import after_count, after_watermark, in_sequence, repeatedly, when
from strandline.model.windows import Count, Global, session, sliding, tumbling

TOTAL = (("total", Sum("v")),)


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (lambda: WindowedStep(()), InvalidAggregate, "nothing is computed"),
        (lambda: WindowedStep((("window", count()),)), InvalidAggregate, "'window' is a field of every pane"),
        (lambda: WindowedStep(TOTAL + TOTAL), InvalidAggregate, "two aggregates are called 'total'"),
        (lambda: WindowedStep(TOTAL, trigger=when("totl > 1")), InvalidTrigger, "reads 'totl', which no pane has"),
        (lambda: WindowedStep(TOTAL, trigger=when("first.total > 1")), InvalidTrigger, "reads 'first.total'"),
        (
            lambda: WindowedStep(TOTAL, trigger=after_watermark(early=in_sequence(after_count(1), when("x > 1")))),
            InvalidTrigger,
            "reads 'x'",
        ),
        (lambda: WindowedStep(TOTAL, trigger=when("last.since > 1")), InvalidTrigger, "reads 'last.since'"),
        (lambda: WindowedStep((("since", count()),), trigger=when("since > 1")), InvalidTrigger, "'since' could be"),
        (lambda: WindowedStep(ttl=Duration(1), window=tumbling("1m")), InvalidStep, "only a global window"),
        (lambda: WindowedStep(ttl=Duration(0)), InvalidStep, "a time to live of 0s keeps nothing"),
        (lambda: WindowedStep(window=Count(2), evictor=KeepLast(1)), InvalidStep, "holds exactly what it counts"),
        (lambda: WindowedStep(window=Count(2), trigger=after_count(1)), InvalidStep, "takes no trigger"),
        (lambda: Lateness(Duration(-1)), InvalidStep, "an allowed lateness of -1ms is negative"),
        (lambda: keep_last(-1), InvalidStep, "keeps less than nothing"),
        (lambda: keep_within("0s"), InvalidStep, "keep_within(0s) keeps nothing"),
        (lambda: keep_delta("first.v - v", bound=1), InvalidStep, "reads first.v"),
        (lambda: keep_last(1, when="later"), PlanError, "keep_last(…) cannot take 'later' as when"),
        (lambda: top_k("v", 0), InvalidAggregate, "a top 0 is empty"),
        (lambda: quantile("v", 1.5), InvalidAggregate, "1.5 is not a quantile"),
        (lambda: approx_count_distinct("v", precision=3), InvalidAggregate, "a precision of 3 is out of range"),
        (lambda: approx_count_distinct("v", precision=19), InvalidAggregate, "a precision of 19 is out of range"),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[[], Any], kind: type[PlanError], message: str) -> None:
    with pytest.raises(kind) as error:
        build()
    assert message in error.value.message
    assert error.value.hint


def test_a_condition_may_read_what_a_pane_has_what_it_had_and_how_many_came_since() -> None:
    step = WindowedStep(TOTAL, trigger=when("total > 1 and last.total is None or since >= 3"))
    assert step.trigger == when("total > 1 and last.total is None or since >= 3")


@pytest.mark.parametrize(
    ("step", "caution"),
    [
        (WindowedStep(window=sliding("5s", every="10s")), "leave gaps"),
        (WindowedStep(window=Global()), "completes only when the stream ends"),
        (WindowedStep(trigger=repeatedly(after_count(1))), "keeps a row for every key for ever"),
        (
            WindowedStep(
                window=session("1m"), trigger=repeatedly(after_count(1)), accumulation=Accumulation.ACCUMULATING
            ),
            "stale rows",
        ),
        (WindowedStep(window=tumbling("1m"), trigger=after_count(1)), "finishes"),
    ],
)
def test_what_is_easily_not_meant_is_cautioned_about(step: WindowedStep, caution: str) -> None:
    assert any(caution in each for each in cautions(step))


def test_a_usual_step_needs_no_caution() -> None:
    assert cautions(WindowedStep(window=tumbling("1m"))) == ()


def test_an_aggregate_says_which_columns_it_reads() -> None:
    assert columns_of(count()) == ()
    assert columns_of(top_k("name", 3, by="score")) == ("name", "score")
