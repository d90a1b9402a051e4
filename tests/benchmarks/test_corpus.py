"""The corpus: the same for everybody, out of order and late as it says."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.corpus import FLUSH_KEY, RATE, START, Corpus, batch_of, batches_of, flush_of, written

SMALL = Corpus(keys=50, batches=3, per_batch=20_000)


def test_the_same_corpus_has_the_same_bytes_wherever_it_is_written(tmp_path: Path) -> None:
    one, first = written(SMALL, tmp_path / "one")
    two, second = written(SMALL, tmp_path / "two")
    assert first == second
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in two.iterdir())


def test_another_seed_is_another_corpus(tmp_path: Path) -> None:
    assert written(SMALL, tmp_path)[1] != written(replace(SMALL, seed=8), tmp_path)[1]


def test_a_corpus_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    folder, _ = written(SMALL, tmp_path)
    before = (folder / "00000-0.parquet").stat().st_ino
    written(SMALL, tmp_path)
    assert (folder / "00000-0.parquet").stat().st_ino == before


def test_a_shorter_corpus_is_the_beginning_of_a_longer_one() -> None:
    longer = replace(SMALL, batches=5)
    for number in range(SMALL.batches):
        assert (batch_of(SMALL, number).at == batch_of(longer, number).at).all()
        assert (batch_of(SMALL, number).key == batch_of(longer, number).key).all()


def test_files_are_read_in_the_order_of_their_batches(tmp_path: Path) -> None:
    folder, _ = written(SMALL, tmp_path)
    files = sorted(folder.glob("*.parquet"), key=os.path.getmtime)
    assert [path.name for path in files] == [
        *(f"0000{batch}-{part}.parquet" for batch in range(3) for part in range(2)),
        "00003-0.parquet",
    ]
    assert sum(pq.read_metadata(path).num_rows for path in files) == 60_001


def test_most_events_are_in_time_and_about_one_in_a_hundred_is_late() -> None:
    batch = batch_of(replace(SMALL, per_batch=200_000), 0)
    arrival = START + np.arange(200_000) * 1000 // RATE
    behind = arrival - batch.at
    assert 0.05 < (behind > 50).mean() < 0.07
    assert 0.009 < ((behind > 9_000) & (behind < 61_000)).mean() < 0.011
    assert 0.0005 < (behind > 89_000).mean() < 0.0015
    assert (behind != 0).mean() > 0.5  # out of order within groups of a thousand


def test_a_timely_corpus_is_never_further_behind_than_the_watermark() -> None:
    times = np.concatenate([batch.at for batch in batches_of(replace(SMALL, late=False))])
    assert (np.maximum.accumulate(times) - times).max() < 5_000


def test_a_thinned_corpus_keeps_every_event_of_the_keys_it_keeps() -> None:
    whole, thin = batch_of(SMALL, 1), batch_of(replace(SMALL, thin=10), 1)
    assert set(thin.key) == {0, 10, 20, 30, 40}
    assert (whole.at[whole.key == 20] == thin.at[thin.key == 20]).all()


def test_hot_keys_are_hot() -> None:
    even, hot = (np.bincount(batch_of(replace(SMALL, hot=hot), 0).key).max() for hot in (False, True))
    assert hot > 5 * even


def test_the_flush_is_later_than_any_window() -> None:
    flush = flush_of(SMALL)
    assert list(flush.key) == [FLUSH_KEY]
    assert flush.at[0] > max(batch_of(SMALL, number).at.max() for number in range(3)) + 3_000_000
