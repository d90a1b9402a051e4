"""Texts that come again and again: which are worth a list, and that it says the same."""

import polars as pl
import pytest

from strandline.kernel.blocks.dictionary_encoding import coded


@pytest.mark.parametrize("kind", [pl.String, pl.Binary])
def test_words_and_places_say_what_the_column_said(kind: type[pl.DataType]) -> None:
    column = pl.Series("team", [None, "red", "blue", "", "red"] * 400).cast(kind)
    found = coded(column)
    assert found is not None
    assert found.words.cast(pl.String).to_list() == ["red", "blue", ""]
    assert found.words.gather(found.places).to_list() == column.to_list()


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pl.Series([f"{number}" for number in range(5_000)]), id="all different"),
        pytest.param(pl.Series(["red"] * 100), id="few"),
        pytest.param(pl.Series([], dtype=pl.String), id="none"),
    ],
)
def test_others_are_left_as_they_are(column: pl.Series) -> None:
    assert coded(column) is None


def test_a_column_of_nothing_but_nulls_has_no_words() -> None:
    found = coded(pl.Series([None] * 1_000, dtype=pl.String))
    assert found is not None
    assert (found.words.len(), found.places.null_count()) == (0, 1_000)
