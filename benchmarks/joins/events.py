"""Generate two seeded streams of events, and write them as Parquet in two folders.

The event at position p of a stream happened p / rate seconds after the start, less a lag of up to 3 s for one in
twenty. Keys are uniform. Events arrive in order of position, shuffled inside groups of a thousand. None is later than
the watermark delay.
"""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.corpus import kept, put, shuffled

START: Final = 1_700_000_000_000
WITHIN: Final = 20
"""Seconds after a left event in which a right event is its partner."""
DELAY: Final = 5
"""Seconds of the watermark delay."""
LAG: Final = 3_000
COLUMNS: Final = "key long, at timestamp, number long, amount long"
SIDES: Final = ("left", "right")


@dataclass(frozen=True, slots=True)
class Streams:
    """Two streams as a value: equal values give equal bytes."""

    batches: int
    per_batch: int = 100_000
    """Events of one stream in a batch."""
    rate: int = 10_000
    """Events of one stream per second of event time."""
    keys: int = 100_000
    seed: int = 7

    @property
    def name(self) -> str:
        return f"joins-{self.batches}x{self.per_batch}-rate{self.rate}-{self.keys}keys-seed{self.seed}"


def batch_of(streams: Streams, side: int, number: int) -> pa.Table:
    """Generate one batch of one stream from its number alone."""
    count = streams.per_batch
    random = np.random.default_rng([streams.seed, side, number])
    position = number * count + shuffled(random, count)
    lag = np.where(random.random(count) < 0.05, random.integers(0, LAG, count), 0)
    at = START + position * 1000 // streams.rate - lag
    return pa.table({
        "key": pa.array(random.integers(0, streams.keys, count)),
        "at": pa.array(at * 1000, pa.timestamp("us", tz="UTC")),
        "number": pa.array(position),
        "amount": pa.array(random.integers(0, 10_000, count)),
    })  # fmt: skip


def written(streams: Streams, cache: Path) -> tuple[Path, str]:
    """Return the folder of both streams, written if it is missing, and the SHA-256 of their values."""
    return kept(streams.name, asdict(streams), cache, lambda folder: _write(streams, folder))


def _write(streams: Streams, folder: Path) -> str:
    digest = hashlib.sha256()
    for side, name in enumerate(SIDES):
        (folder / name).mkdir()
        for number in range(streams.batches):
            batch = batch_of(streams, side, number)
            for column in batch.columns:
                for buffer in column.combine_chunks().buffers():
                    digest.update(b"" if buffer is None else buffer)
            put(folder / name, number, batch)
    return digest.hexdigest()
