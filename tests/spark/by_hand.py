"""The path of a batch without Spark: prepare, the processor around the kernel, and the gathering of what it says.

Everything is the job's own code; only what Spark carries is carried by hand, in any order and as often as one likes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from strandline.kernel.blocks import unpack
from strandline.kernel.output import Output, gather
from strandline.kernel.step import Ask
from strandline.plan.stages import Stages
from strandline.spark import prepare
from strandline.spark.keyed_step import KeyGroupProcessor
from strandline.spark.ports import RECORD
from strandline.spark.prepare import prepare_task

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

    def containsKey(self, key: tuple[str]) -> bool:  # noqa: N802 - Spark's name
        return key[0] in self.held

    def removeKey(self, key: tuple[str]) -> None:  # noqa: N802 - Spark's name
        del self.held[key[0]]

    def keys(self) -> Iterator[tuple[str]]:
        return ((place,) for place in self.held)


@dataclass
class Handle:
    """What a processor is given to find its state with."""

    state: MapState

    def getMapState(self, name: str, key: str, value: str) -> MapState:  # noqa: N802 - Spark's name
        assert (name, key, value) == ("blocks", "place string", "block binary")
        return self.state


def rows(*values: bytes | None, partition: str = "0", first: int = 0) -> list[Raw]:
    """Records of one partition, in a row."""
    return [(partition, first + place, value, RECORD) for place, value in enumerate(values)]


def task(stages: Stages, raw: Iterable[Raw], clock: int) -> list[tuple[int, bytes]]:
    """What one task of the prepare stage sends: key groups and their blocks."""
    names = ("partition", "offset", "value", "mark", "clock")
    kinds = (pa.string(), pa.int64(), pa.binary(), pa.int32(), pa.timestamp("us", tz="UTC"))
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=clock)
    columns = list(zip(*((*row, moment) for row in raw), strict=True)) or [()] * 5
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
    source: Any = stages.scan.source
    run = prepare_task(stages.prepare, stages.scan.event_time, source.decoder)
    carried: list[tuple[int, bytes]] = []
    for sent in run(iter([batch])):
        carried += zip(*(column.to_pylist() for column in sent.columns), strict=True)
    return carried


@dataclass
class Carrier:
    """A job carried by hand, batch by batch; its state is in `groups`, one map for each key group."""

    stages: Stages
    monkeypatch: pytest.MonkeyPatch
    groups: dict[int, MapState] = field(default_factory=dict)
    horizon: int | None = None

    def carry(self, tasks: Iterable[Iterable[Raw]], clock: int) -> Output:
        """One batch, made of what several tasks read."""
        self.monkeypatch.setattr(prepare, "_horizon", lambda: self.horizon)
        shuffled: dict[int, list[bytes]] = {}
        for raw in tasks:
            for group, block in task(self.stages, raw, clock):
                shuffled.setdefault(group, []).append(block)
        said = [self.step(group, blocks) for group, blocks in sorted(shuffled.items())]
        output = gather(unpack(block, "output") for block in said)
        self.horizon = output.progress.watermark
        return output

    def step(self, group: int, blocks: Iterable[bytes]) -> bytes:
        """One key group's turn: what it says, as bytes."""
        keyed = self.stages.keyed
        ask = Ask(keyed.keys, keyed.step, keyed.watermark, keyed.partitions)
        processor = KeyGroupProcessor(lambda _: ask)
        handle: Any = Handle(self.groups.setdefault(group, MapState()))
        processor.init(handle)
        (said,) = processor.handleInputRows((group,), (Row(kg=group, block=block) for block in blocks), None)
        processor.close()
        assert said.kg == group
        return bytes(said.block)
