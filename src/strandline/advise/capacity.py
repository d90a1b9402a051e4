"""Measure the kernel's throughput on the sample, on this machine, by counting its windows by key.

Only the kernel is measured: reading, decoding, Spark's shuffle and the sinks are not included.
"""

import os
import time
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.advise.clocks import AHEAD, PACE
from strandline.advise.sample import KEY, PARTITION, TIME
from strandline.kernel.blocks.block import AT, OFFSET, pack, unpack
from strandline.kernel.blocks.block import PARTITION as PLACE
from strandline.kernel.operators import operator_of
from strandline.kernel.step import StepSpec, step
from strandline.kernel.watermarks import NEVER, Control, Seen
from strandline.model.aggregates import Count
from strandline.model.elements import Duration
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import bounded
from strandline.model.windows import Tumbling

ENOUGH = 200_000
"""Events to count for the measurement, unless that takes longer than `_MAX_SECONDS`."""
_MAX_SECONDS: Final = 1.0
_BATCH: Final = 50_000


@dataclass(frozen=True, slots=True)
class Capacity:
    """Events per second: of the sample, on average and in its busiest second; and of the kernel."""

    rate: float
    peak: float
    kernel: float
    cores: int

    @property
    def busy(self) -> float:
        """Return the share of the time in which the kernel would be busy."""
        return self.rate / self.kernel


def capacity(rows: pl.DataFrame, window: int, delay: int, groups: int) -> Capacity:
    """Measure the capacity for rows with AHEAD and PACE."""
    sane = rows.filter(~pl.col(AHEAD))
    pace = sane[PACE]
    low, high = int(pace.min() or 0), int(pace.max() or 0)  # type: ignore[arg-type]
    by_second: Any = (pace // 1_000).value_counts()["count"].max()
    span = max(high - low, 1) / 1_000
    rate = sane.height / span
    return Capacity(rate, max(float(by_second), rate), _kernel(sane, window, delay, groups), os.cpu_count() or 1)


def _kernel(sane: pl.DataFrame, window: int, delay: int, groups: int) -> float:
    """Return the kernel's events per second; replay the sample at later times until there are enough events."""
    count = WindowedStep(aggregates=(("events", Count()),), window=Tumbling(Duration(window)))
    ask = StepSpec((KEY,), count, bounded(Duration(delay)), tuple(sane[PARTITION].unique().sort()))
    elements = sane.select(
        pl.col(KEY).fill_null(""), pl.col(TIME).alias(AT), pl.col(PARTITION).alias(PLACE),
        pl.int_range(pl.len()).alias(OFFSET),
    )  # fmt: skip
    first, last = elements.select(pl.col(AT).min().alias("a"), pl.col(AT).max().alias("b")).row(0)
    state: list[dict[str, bytes]] = [{} for _ in range(groups)]
    done, watermark, took, replay = 0, NEVER, 0.0, 0
    while done < ENOUGH and took < _MAX_SECONDS:
        shift, offset = replay * (last - first + 1), replay * elements.height
        moved = elements.with_columns(pl.col(AT) + shift, pl.col(OFFSET) + offset)
        for batch in moved.iter_slices(_BATCH):
            began = time.perf_counter()
            watermark = _play(batch, ask, state, watermark)
            took += time.perf_counter() - began
            done += batch.height
        replay += 1
    return done / took


def _play(batch: pl.DataFrame, ask: StepSpec, state: list[dict[str, bytes]], watermark: int) -> int:
    """Process a batch as a Spark micro-batch would, without Spark; return the watermark after it."""
    seen = [
        Seen(str(name), each.height, int(each[AT].max() or 0))  # type: ignore[arg-type]
        for (name,), each in batch.group_by(PLACE)
    ]
    blocks = operator_of(ask.operator, ask.keys).prepare(batch, len(state), watermark).blocks
    for group, slices in enumerate(state):
        inputs = [unpack(pack(blocks[group]), "input")] if group in blocks else []
        stepped = step(slices, inputs, [Control(0, tuple(seen), False)], ask)
        for place, data in stepped.writes.items():
            if data is None:
                slices.pop(place, None)
            else:
                slices[place] = data
        watermark = stepped.progress.watermark
    return watermark
