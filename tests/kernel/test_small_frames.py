"""Operations on small frames give the same result as Polars queries."""

import polars as pl
import pytest

from strandline.kernel.blocks.small_frames import collected, only, stacked, without

FRAME = pl.DataFrame({"a": [1, 2], "b": ["x", None], "c": [True, False]})


@pytest.mark.parametrize("names", [["a"], ["c", "a"], ["a", "b", "c"]])
def test_only_selects_columns_in_the_given_order(names: list[str]) -> None:
    assert only(FRAME, names).equals(FRAME.select(names))


@pytest.mark.parametrize("names", [[], ["a"], ["c", "a"]])
def test_without_keeps_the_order_of_the_other_columns(names: list[str]) -> None:
    assert without(FRAME, names).equals(FRAME.drop(names))


def test_selecting_no_column_gives_an_empty_frame() -> None:
    assert only(FRAME, []).columns == without(FRAME, FRAME.columns).columns == []


def test_selecting_a_missing_column_fails_and_dropping_one_does_not() -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        only(FRAME, ["d"])
    assert without(FRAME, ["d", "a"]).columns == ["b", "c"]


def test_frames_with_equal_or_different_schemas_are_stacked() -> None:
    assert stacked([FRAME]) is FRAME
    assert stacked([FRAME, FRAME]).equals(pl.concat([FRAME, FRAME]))
    other = pl.DataFrame({"a": [3.5], "d": [1]})
    assert stacked([FRAME, other]).equals(pl.concat([FRAME, other], how="diagonal_relaxed"))
    # Equal columns in another order are another schema.
    reordered = only(FRAME, ["c", "b", "a"])
    assert stacked([FRAME, reordered]).equals(pl.concat([FRAME, FRAME]))


@pytest.mark.parametrize("rows", [3, 10_000])
def test_a_query_gives_the_same_with_and_without_the_optimizer(rows: int) -> None:
    frame = pl.DataFrame({"a": range(rows)})
    query = frame.lazy().with_columns((pl.col("a") % 3).alias("b")).filter(pl.col("b") == 1).select("a")
    assert collected(query, rows).equals(query.collect())
