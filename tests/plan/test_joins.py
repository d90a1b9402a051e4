"""Joins are checked when they are built, and explained."""

from dataclasses import dataclass
from typing import Any

import pytest

import strandline as sl
from strandline.errors import InvalidStep, PlanError
from strandline.plan.pipeline import Elements, read
from tests.plan.endpoints import NoRunner, PaperSink, PaperSource


@dataclass(frozen=True)
class Source(PaperSource):
    name: str = "orders"
    columns: str = "order_id long, amount double, at timestamp"


def stream(name: str = "orders", columns: str = "order_id long, amount double, at timestamp") -> Elements:
    return read(Source(name=name, columns=columns), NoRunner()).event_time("at", sl.bounded(seconds=5))


ORDERS = stream()
TIMELESS = read(Source(), NoRunner())
PAYMENTS = stream("payments", "id long, order_id long, amount double, method string, at timestamp")


def joined(**options: Any) -> Elements:
    return ORDERS.join(PAYMENTS).on("order_id").within(**{"before": "1m", "after": "1h", **options})


def test_columns_of_both_sides_are_named_without_clash() -> None:
    assert list(joined().root.columns) == ["order_id", "amount", "at", "id", "amount_right", "method", "at_right"]
    assert list(joined(suffix="_paid").root.columns)[-3:] == ["amount_paid", "method", "at_paid"]
    assert list(joined(how="anti").root.columns) == ["order_id", "amount", "at"]


def test_key_columns_may_have_two_names() -> None:
    pairs = ORDERS.join(PAYMENTS).on(order_id="id").within(after="1h")
    assert list(pairs.root.columns) == [
        "order_id", "amount", "at", "order_id_right", "amount_right", "method", "at_right",
    ]  # fmt: skip


def test_explain_states_interval_and_state() -> None:
    text = joined(how="left", where="amount <= amount_right").write(PaperSink()).explain()
    assert "left join: right event time in [left - 1m, left + 1h]" in text
    assert "where amount <= amount_right" in text
    assert "keeps left rows until the watermark is 1h past their time, right rows until it is 1m past" in text


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: ORDERS.join(PAYMENTS).on(), "names no column"),
        (lambda: ORDERS.join(PAYMENTS).on("order"), "did you mean 'order_id'"),
        (lambda: ORDERS.join(PAYMENTS).on("amount", amount="amount"), "twice"),
        (lambda: ORDERS.join(PAYMENTS).on(order_id="method"), "long on the left, string on the right"),
        (lambda: ORDERS.join(PAYMENTS).on("order_id").within(), "needs an interval"),
        (lambda: joined(before="-2h", after="1h"), "the bounds cross"),
        (lambda: joined(before="0s", after="0s", inclusive=False), "the bounds cross"),
        (lambda: joined(how="outer"), "choose one of inner, left, right, full, semi, anti"),
        (lambda: joined(where="amont > 1"), "did you mean 'amount'"),
        (lambda: joined(where="last.amount > 1"), "write amount alone"),
        (lambda: joined(allowed_lateness="-1s"), "negative"),
        (lambda: joined(suffix=""), "choose another suffix"),
        (lambda: ORDERS.join(TIMELESS).on("order_id").within(after="1s").write(PaperSink()).explain(), "have no time"),
    ],
)  # fmt: skip
def test_a_wrong_join_is_refused_with_the_way_out(build: Any, words: str) -> None:
    with pytest.raises(PlanError) as refused:
        build()
    assert words in str(refused.value), str(refused.value)


def test_a_join_over_retractions_is_refused() -> None:
    totals = ORDERS.key_by("order_id").window(sl.tumbling(seconds=10)).accumulate(sl.retracting).aggregate(n=sl.count())
    with pytest.raises(InvalidStep, match="cannot process retractions"):
        ORDERS.join(totals).on("order_id").within(after="1h").write(PaperSink()).explain()


def test_processing_time_is_refused() -> None:
    clock = read(Source(), NoRunner()).processing_time()
    with pytest.raises(InvalidStep, match="event time"):
        clock.join(PAYMENTS).on("order_id").within(after="1h")


RATES = stream("rates", "currency string, order_id long, rate double, op string, at timestamp")


def priced(**options: Any) -> Elements:
    return ORDERS.as_of(RATES, **options).on("order_id")


def test_a_temporal_join_names_the_columns_of_both_sides() -> None:
    assert list(priced().root.columns) == ["order_id", "amount", "at", "currency", "rate", "op", "at_right"]
    assert list(priced(suffix="_rate").root.columns)[-1] == "at_rate"


def test_explain_states_which_version_counts_and_how_long_versions_are_kept() -> None:
    text = priced(how="left", deleted="op == 'd'", corrections="1h").write(PaperSink()).explain()
    assert "left join as of the left event time: the last right row at or before it, deleted if op == 'd'" in text
    assert "keeps left rows until the watermark is 1h past their time, the newest version of each key forever" in text
    assert "older versions until it is 1h past their end" in text
    assert "bound the state with a tolerance" in text
    near = priced(direction="nearest", tolerance="5s").write(PaperSink()).explain()
    assert "the nearest right row, at most 5s apart" in near
    assert "right rows until it is 10s past" in near
    assert "bound the state" not in near


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: priced(how="full"), "choose inner or left"),
        (lambda: priced(how="outer"), "choose one of inner"),
        (lambda: priced(direction="sideways"), "choose one of backward, forward, nearest"),
        (lambda: priced(direction="forward"), "needs a tolerance"),
        (lambda: priced(tolerance="-1s"), "negative"),
        (lambda: priced(corrections="-1s"), "negative"),
        (lambda: priced(deleted="opp == 'd'"), "did you mean 'op'"),
        (lambda: priced(deleted="last.op == 'd'"), "write op alone"),
        (lambda: priced(direction="forward", tolerance="1s", deleted="op == 'd'"), "cannot process deletions"),
        (lambda: ORDERS.as_of(RATES).on(), "names no column"),
        (lambda: ORDERS.as_of(RATES).on(order_id="currency"), "long on the left, string on the right"),
        (lambda: ORDERS.as_of(TIMELESS).on("order_id").write(PaperSink()).explain(), "have no time"),
        (lambda: ORDERS.as_of(read(Source(), NoRunner()).processing_time()), "uses processing time"),
    ],
)  # fmt: skip
def test_a_wrong_temporal_join_is_refused_with_the_way_out(build: Any, words: str) -> None:
    with pytest.raises(PlanError) as refused:
        build()
    assert words in str(refused.value), str(refused.value)


def test_a_temporal_join_takes_a_changelog_on_the_right_only() -> None:
    totals = RATES.key_by("order_id").window(sl.tumbling(seconds=10)).accumulate(sl.retracting).aggregate(n=sl.count())
    assert "as of" in ORDERS.as_of(totals).on("order_id").write(PaperSink()).explain()
    with pytest.raises(InvalidStep, match="cannot process retractions of left rows"):
        totals.as_of(RATES)
    with pytest.raises(InvalidStep, match="cannot process deletions"):
        ORDERS.as_of(totals, direction="forward", tolerance="1m").on("order_id").write(PaperSink()).explain()
    last = RATES.deduplicate(by="order_id", keep="last", within="1h")
    assert (
        "as of" in ORDERS.as_of(last, direction="forward", tolerance="1m").on("order_id").write(PaperSink()).explain()
    )
