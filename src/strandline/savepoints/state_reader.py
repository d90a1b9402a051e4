"""Read the state of a job from its checkpoint at the end of a batch: frames by keyed step, key group and slice.

Spark's state reader returns the bytes; the kernel decodes them. The job may run meanwhile and is not involved: a
snapshot of hard links (`checkpoint.hardlink_snapshot`) keeps the files that are read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strandline.checkpoint.hardlink_snapshot import snapshot
from strandline.checkpoint.job_folder import Checkpoint
from strandline.errors import StateError
from strandline.execution.block_addresses import place as place_of
from strandline.kernel.state.slice_rows import store_of
from strandline.kernel.state.slice_store import BESIDE, Index, Slice, frames_of, read_index

_VARIABLE: Final = "blocks"


@dataclass(frozen=True, slots=True)
class StateSlice:
    """A slice of a key group: its frames, its size in bytes, and its entry in the index."""

    step: int
    group: int
    kind: str
    number: int | None
    """None for late elements that are stored beside shared slices (decision 0042)."""
    size: int
    frames: Mapping[str, pl.DataFrame]
    entry: Slice | None

    @property
    def rows(self) -> int:
        """Return the number of rows in the main frame of its store."""
        found = self.frames.get(store_of(self.kind).rows)
        return 0 if found is None else found.height


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """The state of one key group of one keyed step: blocks by place, as bytes."""

    step: int
    group: int
    partition: int
    """Partition of Spark's state store."""
    blocks: Mapping[str, bytes]

    @property
    def index(self) -> Index:
        """Return its index: progress and slices."""
        return read_index(self.blocks)

    @property
    def size(self) -> int:
        return sum(map(len, self.blocks.values()))

    def slices(self) -> Iterator[StateSlice]:
        """Decode and yield each slice."""
        index = self.index
        for place, frames in frames_of(self.blocks, f"step {self.step}, key group {self.group}, "):
            if place == BESIDE:
                kind, entry = store_of(place).name, index.store(BESIDE).get(0)
                yield StateSlice(self.step, self.group, kind, None, len(self.blocks[place]), frames, entry)
                continue
            store, number = store_of(place), int(place.partition(":")[2])
            places = [place, *store.delta_places(number, self.blocks)]
            size = sum(len(self.blocks[each]) for each in places)
            entry = index.store(store.name).get(number)
            yield StateSlice(self.step, self.group, store.name, number, size, frames, entry)


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job at the end of a batch: every key group of every keyed step, in order."""

    batch: int
    groups: tuple[KeyGroup, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the numbers of the keyed steps with state."""
        return tuple(sorted({each.step for each in self.groups}))

    def of_step(self, number: int) -> tuple[KeyGroup, ...]:
        return tuple(each for each in self.groups if each.step == number)


def read_state(spark: SparkSession, home: Checkpoint, batch: int | None = None) -> JobState:
    """Read the state at the end of a batch, by default the last committed one. The job may be running."""
    with snapshot(home) as frozen:
        return read_snapshot(spark, frozen, batch)


def read_snapshot(spark: SparkSession, checkpoint: Checkpoint, batch: int | None = None) -> JobState:
    """Read the state from a checkpoint that does not change: a snapshot, or that of a stopped job."""
    at = committed_batch(checkpoint, batch)
    # Spark starts its state store coordinator on the first use of `streams`; the state reader does not start it.
    _ = spark.streams.active
    groups = [group for operator in _operators(checkpoint) for group in _groups(spark, checkpoint, operator, at)]
    return JobState(at, tuple(sorted(groups, key=lambda each: (each.step, each.group))))


def committed_batch(checkpoint: Checkpoint, batch: int | None = None) -> int:
    """Return the last committed batch, or check that the named batch is still kept."""
    kept = checkpoint.committed()
    if not kept:
        raise StateError(f"no batch is committed in {checkpoint.folder}", hint="let the job run a batch first")
    if batch is not None and batch not in kept:
        raise StateError(
            f"batch {batch} is not kept", detail=f"batches {kept[0]} to {kept[-1]} are", hint="name one of these"
        )
    return kept[-1] if batch is None else batch


def _operators(checkpoint: Checkpoint) -> list[int]:
    """Return the numbers of Spark's state operators, one for each level of keyed steps."""
    folder = checkpoint.spark / "state"
    return sorted(int(each.name) for each in folder.iterdir() if each.name.isdigit()) if folder.is_dir() else []


def _groups(spark: SparkSession, checkpoint: Checkpoint, operator: int, batch: int) -> list[KeyGroup]:
    reader = spark.read.format("statestore").option("stateVarName", _VARIABLE).option("operatorId", str(operator))
    try:
        rows = reader.option("batchId", str(checkpoint.in_spark(batch))).load(str(checkpoint.spark))
        named = rows.select("key.*", "user_map_key.*", "user_map_value.*", "partition_id")
        found = pl.DataFrame(named.toDF("kg", "place", "block", "partition").toArrow())
    except (PySparkException, Py4JJavaError) as problem:
        raise StateError(
            f"Spark cannot read the state of batch {batch}",
            detail=_cause(problem),
            hint="name a later batch, or restore the checkpoint from a copy",
        ) from None
    groups = []
    for (to, partition), rows_of_group in found.group_by("kg", "partition", maintain_order=True):
        step, group = place_of(int(str(to)))
        blocks = dict(rows_of_group.select("place", "block").iter_rows())
        groups.append(KeyGroup(step, group, int(str(partition)), blocks))
    return groups


def _cause(problem: Exception) -> str:
    """Return the innermost cause of a Spark error, in one line."""
    causes = [line.removeprefix("Caused by: ") for line in str(problem).splitlines() if line.startswith("Caused by: ")]
    return (causes or str(problem).splitlines() or [""])[-1][:300]
