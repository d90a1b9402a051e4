"""Measure the effect of salting a hot key: CPU time of key groups per batch, with and without salt.

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
from strandline.execution.batch import Batch
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.plan.compile import to_stages
from tests.plan.endpoints import PaperSink, scores
from tests.properties.test_chains import Typed
from tests.spark.by_hand import Carrier

GROUPS: Final = 8
SALTS: Final = (None, 8, 32)
EVERY_MS: Final = 50_000
HOT: Final = 0.8


@dataclass
class Timed(Carrier):
    """A hand-driven job that records the CPU time of each key group."""

    took: dict[int, list[float]] = field(default_factory=dict)

    def step(self, to: int, blocks: Iterable[bytes], level: int, batch: Batch) -> list[tuple[int, bytes]]:
        blocks, began = [*blocks], time.process_time()
        result = super().step(to, blocks, level, batch)
        self.took.setdefault(level, []).append(time.process_time() - began)
        return result


def measure(salt: int | None, batches: int, rows: int) -> str:
    """Measure one window of several batches, most of it one key, with every element kept."""
    keyed = (
        scores(Typed()).event_time("at", sl.bounded(seconds=2)).key_by("key").window(sl.tumbling(ms=EVERY_MS * batches))
    )
    salted = keyed if salt is None else keyed.hot_keys(salt=salt)
    carrier = Timed(to_stages(salted.aggregate(all=sl.collect("v")).write(PaperSink()).root, GROUPS))
    random, fullest, total = np.random.default_rng(1), [], 0.0
    for number in range(batches + 1):
        carrier.took = {}
        carrier.carry_frames({0: [_frame(random, number, rows)]}, number * EVERY_MS)
        fullest.append(sum(max(each) for each in carrier.took.values()))
        total += sum(sum(each) for each in carrier.took.values())
    middle, worst = 1_000 * float(np.median(fullest)), 1_000 * max(fullest)
    each = f"fullest key group {middle:.0f} ms per batch, {worst:.0f} ms at most, {sum(fullest):.1f} s in total"
    return f"salt {salt}: {each}; all key groups {total:.1f} s"


def _frame(random: np.random.Generator, number: int, rows: int) -> pl.DataFrame:
    keys = np.where(random.random(rows) < HOT, "hot", np.char.add("k", random.integers(0, 1_000, rows).astype(str)))
    at = pl.Series(number * EVERY_MS + random.integers(0, EVERY_MS, rows))
    return pl.DataFrame({"key": keys, "v": random.integers(0, 100, rows)}).with_columns(
        pl.from_epoch(at, time_unit="ms").cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias("at"),
        pl.lit("").alias(PARTITION),
        (pl.int_range(pl.len(), dtype=pl.Int64) + number * rows).alias(OFFSET),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--rows", type=int, default=20_000)
    given = parser.parse_args()
    for salt in SALTS:
        print(measure(salt, given.batches, given.rows), flush=True)


if __name__ == "__main__":
    main()
