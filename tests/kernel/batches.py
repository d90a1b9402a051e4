"""Play one key group in tests: elements in, panes out, and the state between batches."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

import strandline as sl
from strandline.kernel.blocks.block import AT, END, OFFSET, PARTITION, REASON, START, Block
from strandline.kernel.state.slice_store import INDEX as INDEX_PLACE
from strandline.kernel.state.slice_store import digest, read_index
from strandline.kernel.step import Stepped, StepSpec, step
from strandline.kernel.watermarks import Control, Seen
from strandline.kernel.window.panes import INDEX, RETRACTION, TIMING
from strandline.kernel.window.prepare import prepare
from strandline.model.aggregates import Aggregate
from strandline.model.elements import Duration
from strandline.model.panes import Lateness
from strandline.model.steps import WindowedStep

Score = tuple[str | None, int, int]
"""A team, its score, and the event time."""


def asking(*, seconds: float = 10, lateness: int | None = 0, **options: Any) -> WindowedStep:
    """Return a step that sums scores in tumbling windows, with other options as given."""
    totals: tuple[tuple[str, Aggregate], ...] = (("total", sl.sum("score")), ("plays", sl.count()))
    allowed = None if lateness is None else Duration(lateness)
    fixed: dict[str, Any] = {
        "window": sl.tumbling(seconds=seconds),
        "aggregates": totals,
        "lateness": Lateness(allowed),
    }
    return WindowedStep(**(fixed | options))


def elements(scores: Sequence[Score], *, partition: str = "0", first: int = 0) -> pl.DataFrame:
    """Return scores as a frame of elements."""
    teams, points, times = zip(*scores, strict=True) if scores else ((), (), ())
    columns = {
        "team": pl.Series(teams, dtype=pl.String),
        "score": pl.Series(points, dtype=pl.Int64),
        AT: pl.Series(times, dtype=pl.Int64),
        PARTITION: pl.Series([partition] * len(scores), dtype=pl.String),
        OFFSET: pl.Series(range(first, first + len(scores)), dtype=pl.Int64),
    }
    return pl.DataFrame(columns)


class Recorded(Mapping[str, bytes]):
    """State that records which places were read."""

    def __init__(self, held: Mapping[str, bytes]) -> None:
        self._held = held
        self.reads: list[str] = []

    def __getitem__(self, place: str) -> bytes:
        self.reads.append(place)
        return self._held[place]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a step must never walk over the whole state")

    def __len__(self) -> int:
        raise AssertionError("a step must never count the whole state")


@dataclass
class KeyGroup:
    """One key group and its state. Tests move its watermark."""

    step: WindowedStep
    combined: bool = False
    held: dict[str, bytes] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    _offset: int = 0

    @property
    def spec(self) -> StepSpec:
        return StepSpec(("team",), self.step, sl.bounded(ms=0), ("0",))

    def play(
        self, *scores: Score, watermark: int | None = None, clock: int | None = None, drain: bool = False
    ) -> Stepped:
        """Play one batch of scores, then set the watermark and the clock."""
        index = read_index(self.held)
        horizon = index.progress.watermark if self.combined else None
        blocks = list(prepare(elements(scores, first=self._offset), ["team"], self.step, 1, horizon).blocks.values())
        self._offset += len(scores)
        highest = None if watermark is None else watermark + 1
        now = max(index.progress.clock, 0) if clock is None else clock
        return self.take(blocks, Control(now, (Seen("0", len(scores), highest),), drain))

    def take(self, blocks: Sequence[Block], control: Control) -> Stepped:
        """Play a batch and keep the blocks it writes."""
        held = Recorded(self.held)
        stepped = step(held, blocks, [control], self.spec)
        self.reads = held.reads
        for place, data in stepped.writes.items():
            if data is None:
                self.held.pop(place, None)
            else:
                self.held[place] = data
        blocks_there = {place: digest(data) for place, data in self.held.items() if place != INDEX_PLACE}
        assert read_index(self.held).digests.items() <= blocks_there.items()
        return stepped


def said(stepped: Stepped, *columns: str) -> list[tuple[Any, ...]]:
    """Return the panes of a batch: sign, team, window start, value and timing, or other columns."""
    if stepped.rows is None:
        return []
    wanted = columns or ("team", START, "total", TIMING)
    rows = stepped.rows.iter_rows(named=True)
    return [("-" if row[RETRACTION] else "+", *(row[name] for name in wanted)) for row in rows]


def refused(stepped: Stepped) -> list[tuple[Any, ...]]:
    """Return the late elements of a batch with their reasons."""
    return [] if stepped.late is None else stepped.late.select("team", "score", REASON).rows()


__all__ = [
    "END", "INDEX", "START", "TIMING", "KeyGroup", "Recorded", "Score", "asking", "elements", "refused", "said",
]  # fmt: skip
