"""Generate a seeded stream of events in which producers resend some, and write it as Parquet.

The event at position p happened p / rate seconds after the start, less a lag of up to 3 s for one in twenty. All
columns are functions of p, so a copy is the same row, event time included. Events arrive in order of position, shuffled
inside groups of a thousand. In place of a new event, a share of the arrivals is a copy of an event up to 20 s earlier.

No event is later than the watermark delay, and copies are closer than the deduplication span. So a contestant that
compares event times, as ours does, and one that compares ids only, as Spark does, must emit the same rows.
"""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.corpus import Longs, kept, put, shuffled

START: Final = 1_700_000_000_000
SPAN: Final = 30
"""Seconds of the watermark delay and of `within`. Spark has one setting for both."""
RESENT: Final = 0.18
"""Share of the arrivals that are copies. Some copy an event that was itself replaced: about 15 % are duplicates."""
REACH: Final = 20
"""Seconds of event time after which an event may still be resent."""
LAG: Final = 3_000
"""Milliseconds by which one event in twenty is behind at most."""
METHODS: Final = ("card", "cash", "cheque", "credit", "debit", "invoice", "transfer", "voucher")
COLUMNS: Final = "at timestamp, account long, amount long, method string"

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Resent:
    """A stream with resent events, as a value: equal values give equal bytes."""

    batches: int
    per_batch: int = 400_000
    rate: int = 40_000
    """Events per second of event time."""
    text: bool = False
    """Whether ids are 32 hexadecimal digits instead of 64-bit integers."""
    seed: int = 7

    @property
    def name(self) -> str:
        ids = "-text" if self.text else ""
        return f"dedupe-{self.batches}x{self.per_batch}-rate{self.rate}{ids}-seed{self.seed}"

    @property
    def columns(self) -> str:
        return f"id {'string' if self.text else 'long'}, {COLUMNS}"


def batch_of(stream: Resent, number: int) -> pa.Table:
    """Generate one batch from its number alone."""
    count = stream.per_batch
    random = np.random.default_rng([stream.seed, number])
    place = number * count + shuffled(random, count)
    earlier = place - random.integers(1, REACH * stream.rate + 1, count)
    copies = (random.random(count) < RESENT) & (earlier >= 0)
    return table_of(stream, np.where(copies, earlier, place))


def table_of(stream: Resent, position: Longs) -> pa.Table:
    """Compute the columns of the events at these positions."""
    luck = _mixed(position.astype(np.uint64) + np.uint64(stream.seed << 48))
    behind = np.where(luck % np.uint64(20) == 0, (luck >> np.uint64(8)) % np.uint64(LAG), 0).astype(np.int64)
    at = START + position * 1000 // stream.rate - behind
    digits = _mixed(luck)
    return pa.table({
        "id": _text(luck, digits) if stream.text else pa.array(luck.view(np.int64)),
        "at": pa.array(at * 1000, pa.timestamp("us", tz="UTC")),
        "account": pa.array((digits % np.uint64(100_000)).astype(np.int64)),
        "amount": pa.array(((digits >> np.uint64(20)) % np.uint64(10_000)).astype(np.int64)),
        "method": pa.array(np.array(METHODS)[(digits >> np.uint64(40)) % np.uint64(len(METHODS))]),
    })  # fmt: skip


def _mixed(value: Hashes) -> Hashes:
    """Map 64-bit integers to 64-bit integers one to one, so that ids look random and never collide."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _text(first: Hashes, second: Hashes) -> pa.Array:
    digits = np.stack([first, second], axis=1).astype(">u8").tobytes().hex().encode()
    return pa.array(np.frombuffer(digits, "S32").astype("U32"))


def written(stream: Resent, cache: Path) -> tuple[Path, str]:
    """Return the folder of a stream, written if it is missing, and the SHA-256 of its values."""
    return kept(stream.name, asdict(stream), cache, lambda folder: _write(stream, folder))


def _write(stream: Resent, folder: Path) -> str:
    digest = hashlib.sha256()
    for number in range(stream.batches):
        batch = batch_of(stream, number)
        for column in batch.columns:
            for buffer in column.combine_chunks().buffers():
                digest.update(b"" if buffer is None else buffer)
        put(folder, number, batch)
    return digest.hexdigest()
