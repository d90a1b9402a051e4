"""How much the kernel can take of this very sample, on this machine: its windows counted by key, batch after batch.

Only the kernel is measured: what reading, decoding, Spark's shuffle and the sinks cost comes on top.
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
"""Events that are counted to measure it, unless that takes long."""
_LONG: Final = 1.0
_BATCH: Final = 50_000


@dataclass(frozen=True, slots=True)
class Capacity:
    """Events a second: of the sample, on the average and in its busiest second; and of the kernel over it."""

    rate: float
    peak: float
    kernel: float
    cores: int

    @property
    def busy(self) -> float:
        """The share of the time that the kernel would be at work."""
        return self.rate / self.kernel


def capacity(rows: pl.DataFrame, window: int, delay: int, groups: int) -> Capacity:
    """Of rows with AHEAD and PACE."""
    sane = rows.filter(~pl.col(AHEAD))
    pace = sane[PACE]
    low, high = int(pace.min() or 0), int(pace.max() or 0)  # type: ignore[arg-type]
    by_second: Any = (pace // 1_000).value_counts()["count"].max()
    span = max(high - low, 1) / 1_000
    rate = sane.height / span
    return Capacity(rate, max(float(by_second), rate), _kernel(sane, window, delay, groups), os.cpu_count() or 1)


def _kernel(sane: pl.DataFrame, window: int, delay: int, groups: int) -> float:
    """Events a second that the kernel counts: the sample over and over, each time later, until there are enough."""
    count = WindowedStep(aggregates=(("events", Count()),), window=Tumbling(Duration(window)))
    ask = StepSpec((KEY,), count, bounded(Duration(delay)), tuple(sane[PARTITION].unique().sort()))
    elements = sane.select(
        pl.col(KEY).fill_null(""), pl.col(TIME).alias(AT), pl.col(PARTITION).alias(PLACE),
        pl.int_range(pl.len()).alias(OFFSET),
    )  # fmt: skip
    first, last = elements.select(pl.col(AT).min().alias("a"), pl.col(AT).max().alias("b")).row(0)
    held: list[dict[str, bytes]] = [{} for _ in range(groups)]
    done, mark, took, turn = 0, NEVER, 0.0, 0
    while done < ENOUGH and took < _LONG:
        moved = elements.with_columns(pl.col(AT) + turn * (last - first + 1), pl.col(OFFSET) + turn * elements.height)
        for batch in moved.iter_slices(_BATCH):
            began = time.perf_counter()
            mark = _play(batch, ask, held, mark)
            took += time.perf_counter() - began
            done += batch.height
        turn += 1
    return done / took


def _play(batch: pl.DataFrame, ask: StepSpec, held: list[dict[str, bytes]], mark: int) -> int:
    """A batch as Spark would carry it, without Spark; the watermark after it."""
    seen = [
        Seen(str(name), each.height, int(each[AT].max() or 0))  # type: ignore[arg-type]
        for (name,), each in batch.group_by(PLACE)
    ]
    blocks = operator_of(ask.operator, ask.keys).prepare(batch, len(held), mark).blocks
    for group, kept in enumerate(held):
        mine = [unpack(pack(blocks[group]), "input")] if group in blocks else []
        stepped = step(kept, mine, [Control(0, tuple(seen), False)], ask)
        for place, data in stepped.writes.items():
            if data is None:
                kept.pop(place, None)
            else:
                kept[place] = data
        mark = stepped.progress.watermark
    return mark
