"""Slices by key hash are split as they grow, and every hash has one slice."""

from random import Random

import numpy as np
import polars as pl
import pytest

from strandline.kernel.join import hash_slices
from strandline.kernel.join.hash_slices import ROOT, slices_of, split


def rows(*hashes: int) -> pl.DataFrame:
    return pl.DataFrame({"hash": sorted(hashes)}, schema={"hash": pl.Int64})


def test_a_table_without_slices_begins_with_one() -> None:
    assert slices_of(np.array([0, 7, 2**32 - 1]), ()).tolist() == [ROOT] * 3


def test_a_slice_with_many_rows_is_split_and_its_rows_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_slices, "MOST_ROWS", 4)
    chance = Random(3)
    frame = rows(*(chance.randrange(2**32) for _ in range(200)))
    parts = dict(split(ROOT, frame, "hash"))
    assert max(part.height for part in parts.values()) <= 4
    assert sum(part.height for part in parts.values()) == 200
    for number, part in parts.items():
        assert set(slices_of(part["hash"].to_numpy(), parts).tolist()) == {number}


def test_hashes_between_slices_get_the_largest_slice_that_fits() -> None:
    """Slice 4 has the first quarter of all hashes: the second quarter is slice 5, the second half slice 3."""
    quarter = 2**30
    assert slices_of(np.array([0, quarter, 2 * quarter, 3 * quarter]), {4}).tolist() == [4, 5, 3, 3]
    assert slices_of(np.array([3 * quarter, 0]), {6}).tolist() == [7, 2]


def test_rows_of_one_key_are_not_split_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_slices, "MOST_ROWS", 4)
    ((number, part),) = split(ROOT, rows(*[12345] * 50), "hash")
    assert part.height == 50
    assert not hash_slices.can_split(number, 1_000)
