"""Measures what spreading a hot key brings: process time of key groups, batch by batch, with salt and without.

usage: POLARS_MAX_THREADS=1 .venv/bin/python scripts/salting.py [--batches 30] [--rows 20000]
"""

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import strandline as sl
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.plan.compile import to_stages
from strandline.spark.batch_properties import Batch
from tests.plan.endpoints import PaperSink, scores
from tests.properties.test_chains import Typed
from tests.spark.by_hand import Carrier

GROUPS: Final = 8
SALTS: Final = (None, 8, 32)
EVERY_MS: Final = 50_000
HOT: Final = 0.8


@dataclass
class Timed(Carrier):
    """A job carried by hand that knows how long each key group took."""

    took: dict[int, list[float]] = field(default_factory=dict)

    def step(self, to: int, blocks: Iterable[bytes], level: int, batch: Batch) -> list[tuple[int, bytes]]:
        came, began = [*blocks], time.process_time()
        said = super().step(to, came, level, batch)
        self.took.setdefault(level, []).append(time.process_time() - began)
        return said


def measure(salt: int | None, batches: int, rows: int) -> str:
    """One window of so many batches, most of it one key, each element kept."""
    keyed = (
        scores(Typed()).event_time("at", sl.bounded(seconds=2)).key_by("key").window(sl.tumbling(ms=EVERY_MS * batches))
    )
    asked = keyed if salt is None else keyed.hot_keys(salt=salt)
    carrier = Timed(to_stages(asked.aggregate(all=sl.collect("v")).write(PaperSink()).root, GROUPS))
    chance, fullest, everyone = np.random.default_rng(1), [], 0.0
    for number in range(batches + 1):
        carrier.took = {}
        carrier.carry_frames({0: [_frame(chance, number, rows)]}, number * EVERY_MS)
        fullest.append(sum(max(each) for each in carrier.took.values()))
        everyone += sum(sum(each) for each in carrier.took.values())
    middle, worst = 1_000 * float(np.median(fullest)), 1_000 * max(fullest)
    each = f"fullest key group {middle:.0f} ms a batch, {worst:.0f} ms at most, {sum(fullest):.1f} s in all"
    return f"salt {salt}: {each}; all key groups {everyone:.1f} s"


def _frame(chance: np.random.Generator, number: int, rows: int) -> pl.DataFrame:
    keys = np.where(chance.random(rows) < HOT, "hot", np.char.add("k", chance.integers(0, 1_000, rows).astype(str)))
    at = pl.Series(number * EVERY_MS + chance.integers(0, EVERY_MS, rows))
    return pl.DataFrame({"key": keys, "v": chance.integers(0, 100, rows)}).with_columns(
        pl.from_epoch(at, time_unit="ms").cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias("at"),
        pl.lit("").alias(PARTITION),
        (pl.int_range(pl.len(), dtype=pl.Int64) + number * rows).alias(OFFSET),
    )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--batches", type=int, default=30)
    asked.add_argument("--rows", type=int, default=20_000)
    given = asked.parse_args()
    for salt in SALTS:
        print(measure(salt, given.batches, given.rows), flush=True)


if __name__ == "__main__":
    main()
