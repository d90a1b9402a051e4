"""Joins of tables are checked when they are built, and explained."""

from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.errors import InvalidStep, PlanError
from strandline.model.table_join import TableJoin
from strandline.plan.compile import to_stages
from strandline.plan.pipeline import Elements, Pipeline, read
from tests.plan.endpoints import NoRunner, PaperSink
from tests.plan.test_joins import Source, stream

ORDERS = stream()
PAYMENTS = stream("payments", "id long, order_id long, amount double, at timestamp")
PARCELS = stream("parcels", "order_id long, carrier string, at timestamp")


def three(**options: Any) -> Elements:
    return sl.join_tables(ORDERS, PAYMENTS, PARCELS, **{"forever": True, **options}).on("order_id")


def last(elements: Elements, by: str = "order_id", **options: Any) -> Elements:
    return elements.deduplicate(by=by, keep="last", **{"forever": True, **options})


def operator(elements: Elements) -> TableJoin:
    found: Any = elements.root
    assert isinstance(found.operator, TableJoin)
    return found.operator


def test_columns_of_all_tables_are_named_without_clash() -> None:
    assert list(three().root.columns) == ["order_id", "amount", "at", "id", "amount_2", "at_2", "carrier", "at_3"]
    named = three(suffixes=["_paid", "_sent"], how=["left", "semi"])
    assert list(named.root.columns) == ["order_id", "amount", "at", "id", "amount_paid", "at_paid"]
    two = ORDERS.join(PAYMENTS).on(order_id="id").as_tables(forever=True)
    assert list(two.root.columns) == [
        "order_id", "amount", "at", "order_id_right", "amount_right", "at_right",
    ]  # fmt: skip


def test_key_columns_may_have_a_name_in_each_table() -> None:
    joined = sl.join_tables(ORDERS, PAYMENTS, PARCELS, forever=True).on(order_id=["id", "order_id"])
    assert list(joined.root.columns)[:4] == ["order_id", "amount", "at", "order_id_2"]


def test_explain_states_the_join_and_its_state() -> None:
    text = three(how="left").write(PaperSink()).explain()
    assert "left join of 3 tables: changes as retractions and insertions, in one step without intermediate" in text
    assert "keeps the current rows of every table forever" in text
    text = three(how=["left", "anti"], forever=False, expire_after="30d").write(PaperSink()).explain()
    assert "left, then anti join of 3 tables" in text
    assert "keeps the current rows of every table until the watermark is 30d past the last change of their key" in text
    assert "a key that returns after 30d without a change begins anew" in text


def test_tables_with_one_row_of_each_key_may_be_upserted_by_key() -> None:
    sink = sl.sqlite("paid.db", table="paid", mode="upsert")
    one = sl.join_tables(last(ORDERS), last(PAYMENTS), how="left", forever=True).on("order_id")
    assert operator(one).one_row
    to_stages(one.write(sink).root)
    chained = one.join(last(PARCELS)).on("order_id").as_tables(how="left", forever=True)
    assert operator(chained).one_row
    for many in (
        sl.join_tables(last(ORDERS), PAYMENTS, forever=True).on("order_id"),
        sl.join_tables(last(ORDERS), last(PAYMENTS, by="id"), forever=True).on("order_id"),
        sl.join_tables(last(ORDERS), last(PAYMENTS, within="1h"), forever=True).on("order_id"),
    ):
        assert not operator(many).one_row
        with pytest.raises(InvalidStep, match="emits several rows for a key") as refused:
            to_stages(many.write(sink).root)
        assert "name the columns that identify a row" in str(refused.value.hint)
    by_payment = sl.sqlite("paid.db", table="paid", key=["order_id", "id"])
    many = sl.join_tables(last(ORDERS), last(PAYMENTS, by="id"), forever=True).on("order_id")
    to_stages(many.write(by_payment).root)


def test_a_window_over_tables_is_warned_of_corrections_that_come_late() -> None:
    totals = three().key_by("carrier").window(sl.tumbling(minutes=1)).aggregate(n=sl.count())
    text = totals.write(PaperSink()).explain()
    assert "corrections of join of tables by order_id may be any time behind the watermark" in text
    assert "rows of join of tables by order_id may leave a key and window of n by carrier" in text


def test_a_sink_that_takes_no_retractions_is_refused() -> None:
    with pytest.raises(InvalidStep, match="cannot take retractions"):
        to_stages(three().write(PaperSink(takes_retractions=False)).root)


def written(elements: Elements) -> Pipeline:
    pipeline = elements.write(PaperSink())
    to_stages(pipeline.root)
    return pipeline


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: written(three(forever=False)), "keeps the rows of every key forever"),
        (lambda: three(expire_after="1h", time_to_live="1h"), "are both given"),
        (lambda: three(expire_after="0s"), "are never kept"),
        (lambda: three(how="outer"), "there is no join 'outer'"),
        (lambda: three(how=["left"]), "1 join types are given for 3 tables"),
        (lambda: three(suffixes=["_a"]), "1 suffixes are given for 3 tables"),
        (lambda: three(suffixes=["_2", "_2"]), "and 'at_2' is taken too"),
        (lambda: sl.join_tables(ORDERS, PAYMENTS).on(), "names no column"),
        (lambda: sl.join_tables(ORDERS, PAYMENTS).on("order"), "did you mean 'order_id'"),
        (lambda: sl.join_tables(ORDERS, PAYMENTS).on("order_id", order_id="id"), "twice"),
        (lambda: sl.join_tables(ORDERS, PAYMENTS, PARCELS).on(order_id=["id"]), "1 columns for 2 later tables"),
        (lambda: sl.join_tables(ORDERS, PAYMENTS, PARCELS).on(order_id="carrier"), "no column 'carrier'"),
        (lambda: sl.join_tables(ORDERS, PARCELS).on(order_id="carrier"), "long in table 1, string in table 2"),
        (lambda: sl.join_tables(*[ORDERS] * 17, suffixes=[f"_{n}" for n in range(16)]).on("order_id"), "17 tables"),
        (
            lambda: sl.join_tables(ORDERS, ORDERS.with_columns(retraction=pl.lit(True))).on("order_id"),
            "mistaken for the sign",
        ),
    ],
)
def test_what_cannot_work_is_refused(build: Any, words: str) -> None:
    with pytest.raises(PlanError) as refused:
        build()
    assert words in str(refused.value)


def test_event_time_is_needed_to_forget_by_it() -> None:
    by_clock = read(Source(), NoRunner()).processing_time()
    with pytest.raises(InvalidStep, match="a table uses processing time"):
        sl.join_tables(by_clock, PAYMENTS, expire_after="1h").on("order_id")
    sl.join_tables(by_clock, PAYMENTS, time_to_live="1h").on("order_id")
