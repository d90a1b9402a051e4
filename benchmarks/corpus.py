"""Generate the seeded corpus of all contestants: evenly spaced events, out of order, some late, stored as Parquet.

The event at position i arrives i / RATE seconds after the start and has a lag: none for most, up to three seconds
for one in twenty, ten seconds to a minute for one in a hundred (in a storm, for three in ten), over a minute and a half
for one in a thousand. Each batch has its own random numbers, so that a shorter corpus is a prefix of a longer one.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

RATE: Final = 50_000
"""Events per second of event time: dense enough that a window of 20 seconds holds all 100,000 keys."""
START: Final = 1_700_000_000_000
FLUSH_KEY: Final = -1
FLUSH_AFTER: Final = 3_600_000
"""Distance of the last event, which closes all windows and belongs to no key."""
SHUFFLED: Final = 1_000
FILES: Final = 2
"""Files per batch: one per core with alternating events, so that both span the same time."""
ZIPF: Final = 1.1
AGAIN: Final = 0.2
"""Share of repeated events."""
REACH: Final = RATE
"""Distance of repeats: a second at most, so that none is late."""

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A stream as a value: equal values give equal bytes."""

    keys: int
    batches: int
    per_batch: int = 1_000_000
    hot: bool = False
    """Zipf-distributed keys instead of uniform ones."""
    late: bool = True
    storm: bool = False
    """Many late events."""
    repeated: bool = False
    """One event in five repeats an earlier one, as after a sender's retry."""
    thin: int = 1
    """Keep only each n-th key with all its events: the same cost per key, fewer keys."""
    seed: int = 7

    @property
    def name(self) -> str:
        thin = f"-thin{self.thin}" if self.thin > 1 else ""
        kinds = {"hot": self.hot, "timely": not self.late, "storm": self.storm, "repeated": self.repeated}
        kind = "".join(f"-{name}" for name, is_so in kinds.items() if is_so)
        return f"{self.keys}keys-{self.batches}x{self.per_batch}{kind}{thin}-seed{self.seed}"


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of one batch, as columns."""

    key: Longs
    value: Longs
    at: Longs


def batch_of(corpus: Corpus, number: int) -> Batch:
    """Generate one batch from its number alone."""
    batch = _fresh(corpus, number)
    if corpus.repeated:
        batch = _repeated(corpus, number, batch)
    if corpus.thin == 1:
        return batch
    kept = batch.key % corpus.thin == 0
    return Batch(batch.key[kept], batch.value[kept], batch.at[kept])


def _fresh(corpus: Corpus, number: int) -> Batch:
    random = np.random.default_rng([corpus.seed, number])
    count = corpus.per_batch
    key = _keys(corpus, random, count)
    value = random.integers(0, 100, count)
    position = shuffled(random, count)
    arrival = START + (number * count + position) * 1000 // RATE
    return Batch(key, value, arrival - lags(random, count, late=corpus.late, storm=corpus.storm))


def _repeated(corpus: Corpus, number: int, fresh: Batch) -> Batch:
    """Replace some events of a batch by repeats of earlier ones, also of the last batch."""
    random = np.random.default_rng([corpus.seed, number, 1])
    count = corpus.per_batch
    reach = min(REACH, count)
    before = _fresh(corpus, number - 1) if number else Batch(fresh.key[:0], fresh.value[:0], fresh.at[:0])
    again = random.random(count) < AGAIN
    places = np.arange(count) - np.where(again, random.integers(1, reach + 1, count), 0)
    tail = len(before.key)
    found = np.maximum(places + tail, 0)
    old_and_new = (
        np.concatenate([old, new])
        for old, new in ((before.key, fresh.key), (before.value, fresh.value), (before.at, fresh.at))
    )
    return Batch(*(column[found] for column in old_and_new))


def _keys(corpus: Corpus, random: np.random.Generator, count: int) -> Longs:
    if not corpus.hot:
        return random.integers(0, corpus.keys, count)
    weights = np.arange(1, corpus.keys + 1, dtype=np.float64) ** -ZIPF
    shares = np.cumsum(weights) / weights.sum()
    return np.minimum(np.searchsorted(shares, random.random(count)), corpus.keys - 1).astype(np.int64)


def shuffled(random: np.random.Generator, count: int) -> Longs:
    """Return positions from zero, shuffled within groups of a thousand."""
    groups = -(-count // SHUFFLED)
    places = np.tile(np.arange(SHUFFLED), (groups, 1))
    inside: Longs = random.permuted(places, axis=1).reshape(-1)[:count]
    return np.arange(count) // SHUFFLED * SHUFFLED + inside


def lags(random: np.random.Generator, count: int, *, late: bool, storm: bool = False) -> Longs:
    """Return the lag of each event in milliseconds."""
    luck = random.random(count)
    short, long, hopeless = (
        random.integers(*span, count) for span in ((0, 3_000), (10_000, 60_000), (90_000, 150_000))
    )
    behind = np.where(luck < 0.05, short, 0)
    if late:
        last = 0.35 if storm else 0.06
        behind = np.where((luck >= 0.05) & (luck < last), long, behind)
        behind = np.where((luck >= last) & (luck < last + 0.001), hopeless, behind)
    return behind


def flush_of(corpus: Corpus) -> Batch:
    """Return the last batch: one event so far ahead that all earlier windows close."""
    end = START + corpus.batches * corpus.per_batch * 1000 // RATE
    return Batch(np.array([FLUSH_KEY]), np.array([0]), np.array([end + FLUSH_AFTER]))


def batches_of(corpus: Corpus) -> Iterator[Batch]:
    """Generate the whole stream, the flush last."""
    yield from (batch_of(corpus, number) for number in range(corpus.batches))
    yield flush_of(corpus)


def written(corpus: Corpus, cache: Path) -> tuple[Path, str]:
    """Return the folder of a corpus, written if missing, and the SHA-256 of its values."""
    return kept(corpus.name, asdict(corpus), cache, lambda folder: _write(corpus, folder))


def kept(name: str, facts: dict[str, Any], cache: Path, write: Callable[[Path], str]) -> tuple[Path, str]:
    """Return a cache folder, created atomically, and the digest its writer returned."""
    folder = cache / name
    told = folder / "_corpus.json"
    if not told.exists():
        draft = cache / f"_draft-{os.getpid()}-{name}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        digest = write(draft)
        (draft / "_corpus.json").write_text(json.dumps({**facts, "sha256": digest}, indent=1) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    return folder, str(json.loads(told.read_text())["sha256"])


def _write(corpus: Corpus, folder: Path) -> str:
    digest = hashlib.sha256()
    for number, batch in enumerate(batches_of(corpus)):
        for column in (batch.key, batch.value, batch.at):
            digest.update(column.astype("<i8").tobytes())
        put(folder, number, table_of(batch))
    return digest.hexdigest()


def put(folder: Path, number: int, batch: pa.Table) -> None:
    """Write a batch as files with alternating events; a single event as one file."""
    for part in range(FILES if batch.num_rows > 1 else 1):
        path = folder / f"{number:05d}-{part}.parquet"
        pq.write_table(batch.take(np.arange(part, batch.num_rows, FILES)), path)
        # Spark reads files by modification time, and files with equal times in any order.
        moment = START // 1000 + number * 60 + part
        os.utime(path, (moment, moment))


def table_of(batch: Batch) -> pa.Table:
    """Convert a batch to an Arrow table."""
    return pa.table({
        "key": pa.array(batch.key),
        "value": pa.array(batch.value),
        "at": pa.array(batch.at * 1000, pa.timestamp("us", tz="UTC")),
    })  # fmt: skip
