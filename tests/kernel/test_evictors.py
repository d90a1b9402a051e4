"""Evictors applied to many windows at once, each independent of the others."""

import polars as pl
import pytest

import strandline as sl
from strandline.kernel.aggregation.accumulators import TURN
from strandline.kernel.blocks.block import AT, END, OFFSET, PARTITION, START
from strandline.kernel.window.evictors import evict
from strandline.model.evictors import Evictor, Moment

WINDOW = ((5_000, 1, 0), (9_000, 4, 0), (7_000, None, 1), (8_000, 6, 1))
"""Elements in order of arrival: time, value and batch number."""


def contents(*keys: str | None) -> pl.DataFrame:
    """Return the same elements in one window per key, not in order of arrival."""
    rows = [
        (key, 0, 10_000, at, "p", place, turn, value) for key in keys for place, (at, value, turn) in enumerate(WINDOW)
    ]
    schema = {
        "key": pl.String, START: pl.Int64, END: pl.Int64, AT: pl.Int64, PARTITION: pl.String, OFFSET: pl.Int64,
        TURN: pl.Int64, "v": pl.Int64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema, orient="row").sort(AT)


def places(frame: pl.DataFrame, key: str | None = "k") -> list[int]:
    """Return the positions of elements in order of arrival."""
    return sorted(frame.filter(pl.col("key").eq_missing(pl.lit(key)))[OFFSET].to_list())


@pytest.mark.parametrize(
    ("evictor", "stay"),
    [
        (sl.keep_last(2), [2, 3]),
        (sl.keep_last(9), [0, 1, 2, 3]),
        (sl.keep_last(0), []),
        (sl.keep_within("2s"), [1, 3]),
        (sl.keep_within("2001ms"), [1, 2, 3]),
        (sl.keep_delta("last.v - v", bound=3), [1, 2, 3]),
        (sl.keep_delta("last.v - v", bound=0), [2]),
    ],
)
def test_an_evictor_applies_to_every_window(evictor: Evictor, stay: list[int]) -> None:
    left = evict(evictor, Moment.BEFORE, contents("k", "other", None), ["key"])
    assert [places(left, key) for key in ("k", "other", None)] == [stay] * 3


def test_order_of_arrival_is_by_batch_before_position() -> None:
    turned = contents("k").with_columns((-pl.col(OFFSET)).alias(OFFSET))
    assert evict(sl.keep_last(2), Moment.BEFORE, turned, ["key"])[TURN].to_list() == [1, 1]


def test_windows_of_one_key_are_evicted_separately() -> None:
    two = pl.concat([contents("k"), contents("k").with_columns(pl.lit(20_000, pl.Int64).alias(START))])
    assert evict(sl.keep_last(1), Moment.BEFORE, two, ["key"]).select(START, OFFSET).rows() == [(0, 3), (20_000, 3)]


def test_an_evictor_runs_at_its_moment_only() -> None:
    assert places(evict(sl.keep_last(1, when="after"), Moment.BEFORE, contents("k"), ["key"])) == [0, 1, 2, 3]
    assert places(evict(sl.keep_last(1, when="after"), Moment.AFTER, contents("k"), ["key"])) == [3]


@pytest.mark.parametrize("evictor", [sl.keep_last(1), sl.keep_within("1s"), sl.keep_delta("last.v - v", bound=3)])
def test_empty_windows_and_absent_evictors_change_nothing(evictor: Evictor) -> None:
    assert evict(evictor, Moment.BEFORE, contents(), ["key"]).height == 0
    assert evict(None, Moment.BEFORE, contents("k"), ["key"]).equals(contents("k"))
