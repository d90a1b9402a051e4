"""The path of a batch without Spark: prepare, the processor around the kernel, and the gathering of what it says.

Everything is the job's own code; only what Spark carries is carried by hand, in any order and as often as one likes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from pyspark.sql import Row
from pyspark.sql.types import StructType

from strandline.execution.batch import Batch
from strandline.execution.block_addresses import place
from strandline.execution.gather_output import StepOutput, gather
from strandline.execution.keyed_step import play_group
from strandline.execution.prepare import prepare_scan, tick
from strandline.kernel.blocks.block import Block, pack, unpack
from strandline.kernel.output import Counts, Output
from strandline.plan.stages import Stages
from strandline.ports.raw_records import DRAINED, RECORD, TICKED
from strandline.spark.tasks.key_group_processor import KeyGroupProcessor, play_level

Raw = tuple[str, int, bytes | None, int]
"""A row of a source's stream: partition, offset, value, mark."""


class MapState:
    """A map state as Spark gives it to a processor: tuples in, tuples out."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:  # noqa: N802 - Spark's name
        return (self.held[key[0]],) if key[0] in self.held else None

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:  # noqa: N802 - Spark's name
        self.held[key[0]] = value[0]

    def removeKey(self, key: tuple[str]) -> None:  # noqa: N802 - Spark's name
        del self.held[key[0]]

    def keys(self) -> Iterator[tuple[str]]:
        return ((place,) for place in self.held)


@dataclass
class Handle:
    """What a processor is given to find its state with."""

    state: MapState

    def getMapState(self, name: str, key: StructType, value: StructType) -> MapState:  # noqa: N802 - Spark's name
        assert (name, key.simpleString(), value.simpleString()) == (
            "blocks",
            "struct<place:string>",
            "struct<block:binary>",
        )
        return self.state


def rows(*values: bytes | None, partition: str = "0", first: int = 0) -> list[Raw]:
    """Records of one partition, in a row."""
    return [(partition, first + place, value, RECORD) for place, value in enumerate(values)]


def frame_of(raw: Iterable[Raw]) -> pl.DataFrame:
    """Rows of a source's stream as a task gets them."""
    kinds = {"partition": pl.String, "offset": pl.Int64, "value": pl.Binary, "mark": pl.Int32}
    return pl.DataFrame([*raw], schema=kinds, orient="row")


def task(stages: Stages, raw: Iterable[Raw], clock: int, horizon: int | None = None) -> list[tuple[int, bytes]]:
    """What one task of the prepare stage sends: addresses and blocks."""
    frame = frame_of(raw)
    return packed(stages, 0, frame, clock, {} if horizon is None else {0: horizon}, 0)


def packed(
    stages: Stages, scan: int, frame: pl.DataFrame, clock: int, horizons: Mapping[int, int], number: int
) -> list[tuple[int, bytes]]:
    if frame.is_empty():
        return []
    source: Any = stages.scans[scan].source
    batch = Batch(clock, horizons)
    sent = prepare_scan(frame, stages.scans[scan], stages.by_number, source.decoder, batch, number)
    return [(to, pack(block)) for to, block in sent]


@dataclass
class Carrier:
    """A job carried by hand, batch by batch; its state is in `groups`, one map for each key group of each step."""

    stages: Stages
    groups: dict[int, MapState] = field(default_factory=dict)
    combines: bool = True
    """Whether tasks are told the watermark before the batch, so that they may combine."""
    steps: dict[int, StepOutput] = field(default_factory=dict)
    known: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The partitions of each scan that the driver sends with a batch."""
    counts: dict[str, Counts] = field(default_factory=dict)
    """Of each step, over all batches."""

    def carry(self, tasks: Iterable[Iterable[Raw]], clock: int) -> Output:
        """One batch of the first source, made of what several tasks read: what the first output gets."""
        return self.carry_frames({0: [frame_of(raw) for raw in tasks]}, clock)[0]

    def carry_frames(
        self, tasks: Mapping[int, Sequence[pl.DataFrame]], clock: int, *, drain: bool = False
    ) -> list[Output]:
        """One batch: of each scan the frames of its tasks; and what each output gets."""
        known = {number: step.progress.watermark for number, step in self.steps.items()}
        horizons = known if self.combines else {}
        sent = [
            block
            for scan, frames in tasks.items()
            for number, frame in enumerate(frames)
            for block in packed(self.stages, scan, frame, clock, horizons, number)
        ]
        beat = frame_of([("", 0, None, DRAINED if drain else TICKED)])
        sent += [(to, pack(block)) for to, block in tick(beat, self.stages.timed, Batch(clock), 0)]
        for level, _ in enumerate(self.stages.levels, 1):
            sent = self._level(level, sent, Batch(clock, horizons, self.known))
        gathered = gather(unpack(data, "output") for _, data in sorted(sent))
        self.steps |= gathered.steps
        assert gathered.unaccounted == {}
        for name, counts in gathered.counts.items():
            self.counts[name] = self.counts.get(name, Counts()) + counts
        reached = min((step.progress for step in self.steps.values()), key=lambda progress: progress.watermark)
        rows = sum(step.rows for step in self.steps.values())
        return [gathered.output(number, reached, rows) for number in range(len(self.stages.outputs))]

    def _level(self, level: int, sent: Iterable[tuple[int, bytes]], batch: Batch) -> list[tuple[int, bytes]]:
        shuffled: dict[int, list[bytes]] = {}
        for to, data in sent:
            shuffled.setdefault(to, []).append(data)
        return [
            row
            for to, blocks in sorted(shuffled.items(), key=lambda each: place(each[0]))
            for row in self.step(to, blocks, level, batch)
        ]

    def step(self, to: int, blocks: Iterable[bytes], level: int, batch: Batch) -> list[tuple[int, bytes]]:
        """One key group's turn: what it sends, as bytes."""
        _, mine = play_level(self.stages.by_number, level)

        def play(to: int, held: Mapping[str, bytes], found: Sequence[Block]) -> Any:
            number, group = place(to)
            return play_group(self.stages.by_number[number], group, held, found, self.stages.by_number, batch)

        processor = KeyGroupProcessor(play, mine)
        handle: Any = Handle(self.groups.setdefault(to, MapState()) if mine(to) else MapState())
        processor.init(handle)
        said = [*processor.handleInputRows((to,), (Row(kg=to, block=block) for block in blocks), None)]
        processor.close()
        return [(row.kg, bytes(row.block)) for row in said]
