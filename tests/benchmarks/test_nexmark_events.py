"""The log of Nexmark: the same for everybody, in its proportions, out of order and late as it says, and sound."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from benchmarks.corpus import FILES
from benchmarks.nexmark.events import (
    AUCTION,
    BID,
    COLUMNS,
    FIRST_ID,
    HOT_CHANNELS,
    MIDNIGHT,
    PERSON,
    RATE,
    START,
    Log,
    flush_of,
    table_of,
    written,
)  # fmt: skip
from strandline.model.ddl import parse

SMALL = Log(batches=2, per_batch=20_000)


@pytest.fixture(scope="module")
def events() -> pl.DataFrame:
    frame = pl.concat([pl.DataFrame(table_of(SMALL, number)) for number in range(SMALL.batches)])
    return frame.with_columns(ms=pl.col("at").dt.epoch("ms"))


def test_the_same_log_has_the_same_bytes_wherever_it_is_written(tmp_path: Path) -> None:
    one, first = written(SMALL, tmp_path / "one")
    _, second = written(SMALL, tmp_path / "two")
    assert first == second != written(replace(SMALL, seed=8), tmp_path / "one")[1]
    files = sorted(one.glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in files] == [
        *(f"0000{batch}-{part}.parquet" for batch in range(2) for part in range(FILES)), "00002-0.parquet",
    ]  # fmt: skip
    assert sum(pq.read_metadata(path).num_rows for path in files) == 40_001


def test_a_shorter_log_is_the_beginning_of_a_longer_one() -> None:
    assert table_of(SMALL, 1).equals(table_of(replace(SMALL, batches=9), 1))


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids(events: pl.DataFrame) -> None:
    counts = dict(events["kind"].value_counts().iter_rows())
    assert counts == {PERSON: 800, AUCTION: 2_400, BID: 36_800}
    for kind in (PERSON, AUCTION):
        ids = events.filter(pl.col("kind") == kind)["id"]
        assert sorted(ids) == list(range(FIRST_ID, FIRST_ID + counts[kind]))


def test_the_columns_are_those_that_readers_are_told_of(events: pl.DataFrame) -> None:
    assert list(parse(COLUMNS)) == [name for name in events.columns if name != "ms"]
    bids, others = events.filter(pl.col("kind") == BID), events.filter(pl.col("kind") != BID)
    for name in ("auction", "bidder", "price", "channel", "url", "extra"):
        assert bids[name].null_count() == 0
    assert others["auction"].null_count() == others.height
    assert flush_of(SMALL).schema == table_of(SMALL, 0).schema


def test_bids_refer_to_what_there_was_when_they_happened(events: pl.DataFrame) -> None:
    bids = events.filter(pl.col("kind") == BID)
    number = np.maximum((bids["ms"].to_numpy() - START + 1) * RATE // 1000, 0)
    assert (bids["auction"].to_numpy() - FIRST_ID <= number // 50 * 3 + 3).all()
    assert (bids["bidder"].to_numpy() - FIRST_ID <= number // 50 + 1).all()
    assert bids["bidder"].min() == FIRST_ID


def test_some_auctions_bidders_and_channels_are_hot(events: pl.DataFrame) -> None:
    bids = events.filter(pl.col("kind") == BID)
    assert 0.48 < ((bids["auction"] - FIRST_ID) % 100 == 0).mean() < 0.53  # type: ignore[operator]
    assert 0.7 < ((bids["bidder"] - FIRST_ID) % 100 == 1).mean() < 0.8  # type: ignore[operator]
    assert 0.48 < bids["channel"].is_in(HOT_CHANNELS).mean() < 0.52  # type: ignore[operator]
    assert bids["price"].is_between(100, 100_000_000).all()
    assert 0.3 < (bids["price"] < 10_000).mean() < 0.37  # type: ignore[operator]


def test_most_events_are_in_time_and_some_are_late(events: pl.DataFrame) -> None:
    arrival = START + np.arange(events.height) * 1000 // RATE
    behind = arrival - events["ms"].to_numpy()
    assert 0.009 < ((behind > 9_800) & (behind < 61_000)).mean() < 0.012
    assert 0.0005 < (behind > 89_000).mean() < 0.0015
    assert (behind != 0).mean() > 0.5


def test_midnight_is_in_the_log() -> None:
    log = replace(SMALL, batches=3, per_batch=100_000)
    days = {(int(table_of(log, number)["at"][0].value) // 1000 >= MIDNIGHT) for number in (0, 2)}
    assert days == {False, True}
