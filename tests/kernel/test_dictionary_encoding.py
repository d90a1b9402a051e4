"""Dictionary encoding: which columns are encoded, and that the values stay the same."""

import polars as pl
import pytest

from strandline.kernel.blocks.dictionary_encoding import dictionary_encode


@pytest.mark.parametrize("kind", [pl.String, pl.Binary])
def test_words_and_indexes_restore_the_column(kind: type[pl.DataType]) -> None:
    column = pl.Series("team", [None, "red", "blue", "", "red"] * 400).cast(kind)
    found = dictionary_encode(column)
    assert found is not None
    assert found.words.cast(pl.String).to_list() == ["red", "blue", ""]
    assert found.words.gather(found.places).to_list() == column.to_list()


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pl.Series([f"{number}" for number in range(5_000)]), id="all distinct"),
        pytest.param(pl.Series(["red"] * 100), id="few rows"),
        pytest.param(pl.Series([], dtype=pl.String), id="no rows"),
    ],
)
def test_other_columns_are_not_encoded(column: pl.Series) -> None:
    assert dictionary_encode(column) is None


def test_a_column_of_nulls_has_no_words() -> None:
    found = dictionary_encode(pl.Series([None] * 1_000, dtype=pl.String))
    assert found is not None
    assert (found.words.len(), found.places.null_count()) == (0, 1_000)
