"""Window joins are checked when they are built, and explained."""

from typing import Any

import pytest

import strandline as sl
from strandline.errors import InvalidStep, PlanError
from strandline.plan.pipeline import Panes, read
from tests.plan.endpoints import NoRunner, PaperSink
from tests.plan.test_joins import ORDERS, PAYMENTS, Source

WINDOW = sl.tumbling("10m")
PANE = ["window_start", "window_end", "timing", "pane_index", "is_last", "retraction", "overflow_in"]


def joined(window: Any = WINDOW, **options: Any) -> Panes:
    return ORDERS.join(PAYMENTS).on("order_id").window(window, **options)


def test_columns_are_those_of_both_sides_and_of_panes() -> None:
    columns = ["order_id", "amount", "at", "id", "amount_right", "method", "at_right"]
    assert list(joined().root.columns) == [*columns, *PANE]
    assert list(joined(how="semi").root.columns) == ["order_id", "amount", "at", *PANE]


def test_explain_states_window_trigger_and_state() -> None:
    text = joined(how="left", where="amount <= amount_right").write(PaperSink()).explain()
    assert "left join in tumbling(10m), where amount <= amount_right" in text
    assert "keeps rows of both sides until 0s after the end of their last window" in text
    late = joined(allowed_lateness="1h", accumulate="retracting").write(PaperSink()).explain()
    assert "inner join in tumbling(10m), repeatedly(after_watermark()), retracting" in late
    assert "until 1h after the end" in late


def test_explain_warns_of_rows_without_a_partner_that_stay() -> None:
    text = joined(how="left", allowed_lateness="1h").write(PaperSink()).explain()
    assert "use retracting, which withdraws it" in text
    assert "withdraws" not in joined(how="left").write(PaperSink()).explain()
    assert "withdraws" not in joined(how="inner", allowed_lateness="1h").write(PaperSink()).explain()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: joined(sl.everything()), "a join cannot use everything()"),
        (lambda: joined(sl.count_window(10)), "a join cannot use count_window(10)"),
        (lambda: joined(sl.custom(start="at", end="at")), "a join cannot use custom("),
        (lambda: joined(sl.session(column="amount")), "with one gap, not with a gap per element"),
        (lambda: joined(trigger=sl.after_count(3)), "wrap it in repeatedly(…)"),
        (lambda: joined(trigger=sl.after_watermark(), allowed_lateness="1m"), "give after_watermark a late part"),
        (lambda: joined(trigger=sl.repeatedly(sl.when("since > 3"))), "the rows of a join are not aggregated"),
        (lambda: joined(how="outer"), "choose one of inner, left, right, full, semi, anti"),
        (lambda: joined(accumulate="adding"), "accumulat"),
        (lambda: joined(where="amont > 1"), "did you mean 'amount'"),
        (lambda: joined(allowed_lateness="-1s"), "negative"),
        (lambda: joined(suffix=""), "choose another suffix"),
    ],
)  # fmt: skip
def test_a_wrong_window_join_is_refused_with_the_way_out(build: Any, words: str) -> None:
    with pytest.raises((PlanError, ValueError)) as refused:
        build()
    assert words in str(refused.value), str(refused.value)


def test_retractions_and_processing_time_are_refused() -> None:
    totals = ORDERS.key_by("order_id").window(WINDOW).accumulate(sl.retracting).aggregate(n=sl.count())
    with pytest.raises(InvalidStep, match="cannot process retractions"):
        ORDERS.join(totals).on("order_id").window(WINDOW).write(PaperSink()).explain()
    clock = read(Source(), NoRunner()).processing_time()
    with pytest.raises(InvalidStep, match="event time"):
        clock.join(PAYMENTS).on("order_id").window(WINDOW)


def test_an_aggregation_over_accumulating_firings_is_refused() -> None:
    again = joined(accumulate="accumulating", allowed_lateness="1h").key_by("order_id").window(WINDOW)
    with pytest.raises(InvalidStep, match="would count elements twice"):
        again.aggregate(n=sl.count()).write(PaperSink()).explain()


def test_a_step_over_a_retracting_join_retracts_and_allows_its_lateness() -> None:
    over = joined(accumulate="retracting", allowed_lateness="1h").key_by("order_id").window(WINDOW)
    assert over.aggregate(n=sl.count()).root.operator.accumulation == "retracting"
    assert str(over.aggregate(n=sl.count()).root.operator.lateness.allowed) == "1h"
