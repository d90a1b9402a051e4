"""What a job keeps, read from its checkpoint at the end of a batch: by keyed step, key group and slice, as frames.

Spark's own reader gives the bytes, the kernel knows what they mean. The job may be running meanwhile: what is read is
held still (`holding`), and the job is asked for nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strandline.checkpoint.hardlink_snapshot import held
from strandline.checkpoint.job_folder import Checkpoint
from strandline.errors import StateError
from strandline.kernel.state.slice_rows import store_of
from strandline.kernel.state.slice_store import BESIDE, Index, Slice, frames_of, read_index
from strandline.spark.tasks.block_addresses import place as place_of

_VARIABLE: Final = "blocks"


@dataclass(frozen=True, slots=True)
class StateSlice:
    """A slice of a key group: its frames, how large it is at rest, and what the index says of it."""

    step: int
    group: int
    kind: str
    number: int | None
    """None for what came later to slices of strips that stayed as they are."""
    size: int
    frames: Mapping[str, pl.DataFrame]
    entry: Slice | None

    @property
    def rows(self) -> int:
        """Rows of the store."""
        found = self.frames.get(store_of(self.kind).rows)
        return 0 if found is None else found.height


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """What one key group of one keyed step keeps: blocks by place, as bytes."""

    step: int
    group: int
    partition: int
    """Where Spark keeps it."""
    blocks: Mapping[str, bytes]

    @property
    def index(self) -> Index:
        """How far it is, and which slices there are."""
        return read_index(self.blocks)

    @property
    def size(self) -> int:
        return sum(map(len, self.blocks.values()))

    def slices(self) -> Iterator[StateSlice]:
        """Each slice, decoded."""
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
    """What a job keeps at the end of a batch: every key group of every keyed step, in order."""

    batch: int
    groups: tuple[KeyGroup, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """The keyed steps that keep something, by number."""
        return tuple(sorted({each.step for each in self.groups}))

    def of_step(self, number: int) -> tuple[KeyGroup, ...]:
        return tuple(each for each in self.groups if each.step == number)


def read_state(spark: SparkSession, home: Checkpoint, batch: int | None = None) -> JobState:
    """The state at the end of a batch, the last one that was committed unless said, while the job may be running."""
    with held(home) as still:
        return read_still(spark, still, batch)


def read_still(spark: SparkSession, still: Checkpoint, batch: int | None = None) -> JobState:
    """The same, of a checkpoint that nobody changes: one that is held, or of a job that is stopped."""
    at = committed_batch(still, batch)
    # Spark starts what coordinates its state stores only for those who ask for streams, and its reader forgets to.
    _ = spark.streams.active
    groups = [group for operator in _operators(still) for group in _groups(spark, still, operator, at)]
    return JobState(at, tuple(sorted(groups, key=lambda each: (each.step, each.group))))


def committed_batch(still: Checkpoint, batch: int | None = None) -> int:
    """The batch that is meant: the last that was committed, or a named one that is still kept."""
    kept = still.committed()
    if not kept:
        raise StateError(f"no batch was committed in {still.folder}", hint="let the job run a batch first")
    if batch is not None and batch not in kept:
        raise StateError(
            f"batch {batch} is not kept", detail=f"batches {kept[0]} to {kept[-1]} are", hint="name one of these"
        )
    return kept[-1] if batch is None else batch


def _operators(still: Checkpoint) -> list[int]:
    """The state operators, one for each level of keyed steps."""
    folder = still.spark / "state"
    return sorted(int(each.name) for each in folder.iterdir() if each.name.isdigit()) if folder.is_dir() else []


def _groups(spark: SparkSession, still: Checkpoint, operator: int, batch: int) -> list[KeyGroup]:
    reader = spark.read.format("statestore").option("stateVarName", _VARIABLE).option("operatorId", str(operator))
    try:
        rows = reader.option("batchId", str(still.in_spark(batch))).load(str(still.spark))
        named = rows.select("key.*", "user_map_key.*", "user_map_value.*", "partition_id")
        found = pl.DataFrame(named.toDF("kg", "place", "block", "partition").toArrow())
    except (PySparkException, Py4JJavaError) as problem:
        raise StateError(
            f"Spark cannot read the state of batch {batch}",
            detail=_cause(problem),
            hint="name a later batch, or restore the checkpoint from a copy",
        ) from None
    groups = []
    for (to, partition), mine in found.group_by("kg", "partition", maintain_order=True):
        step, group = place_of(int(str(to)))
        blocks = dict(mine.select("place", "block").iter_rows())
        groups.append(KeyGroup(step, group, int(str(partition)), blocks))
    return groups


def _cause(problem: Exception) -> str:
    """The innermost of what Spark says, in a line."""
    said = [line.removeprefix("Caused by: ") for line in str(problem).splitlines() if line.startswith("Caused by: ")]
    return (said or str(problem).splitlines() or [""])[-1][:300]
