"""One seeded stream for everybody: events a second apart by arithmetic, out of order by chance, some late, kept as
Parquet.

The event at position i arrives i / RATE seconds after the start and happened some lag before that: none for most, up to
three seconds for one in twenty, ten seconds to a minute for one in a hundred, beyond a minute and a half for one in a
thousand. Every batch has random numbers of its own, so that a shorter corpus is the beginning of a longer one.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

RATE: Final = 50_000
"""Events a second of event time: dense enough that a window of 20 seconds holds all of 100,000 keys."""
START: Final = 1_700_000_000_000
FLUSH_KEY: Final = -1
FLUSH_AFTER: Final = 3_600_000
"""How far ahead the last event is: it closes every window, and is nobody's."""
SHUFFLED: Final = 1_000
FILES: Final = 2
"""In a batch: one for each core, with every other event, so that both tell of the same stretch of time."""
ZIPF: Final = 1.1

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A stream, as a value: the same one is the same bytes."""

    keys: int
    batches: int
    per_batch: int = 1_000_000
    hot: bool = False
    """Keys by Zipf's law instead of evenly."""
    late: bool = True
    thin: int = 1
    """Only every n-th key is kept, with all of its events: what a key costs is the same, and there are fewer."""
    seed: int = 7

    @property
    def name(self) -> str:
        thin = f"-thin{self.thin}" if self.thin > 1 else ""
        kind = ("-hot" if self.hot else "") + ("" if self.late else "-timely")
        return f"{self.keys}keys-{self.batches}x{self.per_batch}{kind}{thin}-seed{self.seed}"


@dataclass(frozen=True, slots=True)
class Batch:
    """The events of one batch, as columns."""

    key: Longs
    value: Longs
    at: Longs


def batch_of(corpus: Corpus, number: int) -> Batch:
    """One batch, from its number alone."""
    random = np.random.default_rng([corpus.seed, number])
    count = corpus.per_batch
    key = _keys(corpus, random, count)
    value = random.integers(0, 100, count)
    position = np.arange(count) // SHUFFLED * SHUFFLED + _shuffled(random, count)
    arrival = START + (number * count + position) * 1000 // RATE
    batch = Batch(key, value, arrival - _lags(corpus, random, count))
    if corpus.thin == 1:
        return batch
    kept = batch.key % corpus.thin == 0
    return Batch(batch.key[kept], batch.value[kept], batch.at[kept])


def _keys(corpus: Corpus, random: np.random.Generator, count: int) -> Longs:
    if not corpus.hot:
        return random.integers(0, corpus.keys, count)
    weights = np.arange(1, corpus.keys + 1, dtype=np.float64) ** -ZIPF
    shares = np.cumsum(weights) / weights.sum()
    return np.minimum(np.searchsorted(shares, random.random(count)), corpus.keys - 1).astype(np.int64)


def _shuffled(random: np.random.Generator, count: int) -> Longs:
    """Places inside groups of a thousand, in disorder."""
    groups = -(-count // SHUFFLED)
    places = np.tile(np.arange(SHUFFLED), (groups, 1))
    return random.permuted(places, axis=1).reshape(-1)[:count]


def _lags(corpus: Corpus, random: np.random.Generator, count: int) -> Longs:
    luck = random.random(count)
    short, long, hopeless = (
        random.integers(*span, count) for span in ((0, 3_000), (10_000, 60_000), (90_000, 150_000))
    )
    lags = np.where(luck < 0.05, short, 0)
    if corpus.late:
        lags = np.where((luck >= 0.05) & (luck < 0.06), long, lags)
        lags = np.where((luck >= 0.06) & (luck < 0.061), hopeless, lags)
    return lags


def flush_of(corpus: Corpus) -> Batch:
    """The last batch: one event so far ahead that every window before it closes."""
    end = START + corpus.batches * corpus.per_batch * 1000 // RATE
    return Batch(np.array([FLUSH_KEY]), np.array([0]), np.array([end + FLUSH_AFTER]))


def batches_of(corpus: Corpus) -> Iterator[Batch]:
    """The whole stream, the flush last."""
    yield from (batch_of(corpus, number) for number in range(corpus.batches))
    yield flush_of(corpus)


def written(corpus: Corpus, cache: Path) -> tuple[Path, str]:
    """The folder that holds a corpus, made if it is not there, and the SHA-256 of its values."""
    folder = cache / corpus.name
    facts = folder / "_corpus.json"
    if not facts.exists():
        draft = cache / f"_draft-{os.getpid()}-{corpus.name}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        digest = _write(corpus, draft)
        (draft / "_corpus.json").write_text(json.dumps({**asdict(corpus), "sha256": digest}, indent=1) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    told: dict[str, Any] = json.loads(facts.read_text())
    return folder, str(told["sha256"])


def _write(corpus: Corpus, folder: Path) -> str:
    digest = hashlib.sha256()
    for number, batch in enumerate(batches_of(corpus)):
        for column in (batch.key, batch.value, batch.at):
            digest.update(column.astype("<i8").tobytes())
        for part in range(FILES if len(batch.key) > 1 else 1):
            share = slice(part, None, FILES)
            path = folder / f"{number:05d}-{part}.parquet"
            pq.write_table(table_of(Batch(batch.key[share], batch.value[share], batch.at[share])), path)
            # Spark reads files in the order of their times, and those of one moment in any order.
            moment = START // 1000 + number * 60 + part
            os.utime(path, (moment, moment))
    return digest.hexdigest()


def table_of(batch: Batch) -> pa.Table:
    """A batch as Parquet keeps it."""
    return pa.table({
        "key": pa.array(batch.key),
        "value": pa.array(batch.value),
        "at": pa.array(batch.at * 1000, pa.timestamp("us", tz="UTC")),
    })  # fmt: skip
