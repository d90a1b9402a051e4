"""What is asked of small frames without a query gives what a query would."""

import polars as pl
import pytest

from strandline.kernel.blocks.small_frames import collected, only, stacked, without

FRAME = pl.DataFrame({"a": [1, 2], "b": ["x", None], "c": [True, False]})


@pytest.mark.parametrize("names", [["a"], ["c", "a"], ["a", "b", "c"]])
def test_columns_come_in_the_order_asked_for(names: list[str]) -> None:
    assert only(FRAME, names).equals(FRAME.select(names))


@pytest.mark.parametrize("names", [[], ["a"], ["c", "a"]])
def test_the_others_stay_in_order(names: list[str]) -> None:
    assert without(FRAME, names).equals(FRAME.drop(names))


def test_no_column_is_nothing() -> None:
    assert only(FRAME, []).columns == without(FRAME, FRAME.columns).columns == []


def test_a_column_that_is_not_there_cannot_be_asked_for_and_can_be_left_out() -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        only(FRAME, ["d"])
    assert without(FRAME, ["d", "a"]).columns == ["b", "c"]


def test_frames_are_stacked_alike_or_not() -> None:
    assert stacked([FRAME]) is FRAME
    assert stacked([FRAME, FRAME]).equals(pl.concat([FRAME, FRAME]))
    other = pl.DataFrame({"a": [3.5], "d": [1]})
    assert stacked([FRAME, other]).equals(pl.concat([FRAME, other], how="diagonal_relaxed"))
    # The same columns in another order are not alike.
    turned = only(FRAME, ["c", "b", "a"])
    assert stacked([FRAME, turned]).equals(pl.concat([FRAME, FRAME]))


@pytest.mark.parametrize("rows", [3, 10_000])
def test_few_rows_give_what_many_would(rows: int) -> None:
    frame = pl.DataFrame({"a": range(rows)})
    asked = frame.lazy().with_columns((pl.col("a") % 3).alias("b")).filter(pl.col("b") == 1).select("a")
    assert collected(asked, rows).equals(asked.collect())
