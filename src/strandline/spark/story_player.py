"""Play stories on Spark: many stories in one query, each in its own key groups, in lockstep.

One move of every story makes one micro-batch. Each player runs in a thread and waits for the others. The carrier writes
their packets to a folder, a streaming source reads one file per batch, and the carrier hands the output back. A restart
of any story stops the query and starts it again from its checkpoint. Tasks run the functions that tasks of a job run.
"""

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from strandline.errors import LookupUnavailable, RunError, Unsupported
from strandline.execution.batch import Batch
from strandline.execution.block_addresses import CARRIER, address, place
from strandline.execution.gather_output import Gathered, gather
from strandline.execution.keyed_step import play_group
from strandline.execution.prepare import Blocks, SourceName
from strandline.execution.story_batch import Packet, prepared
from strandline.execution.story_player import StagesPlayer
from strandline.kernel.blocks.block import Block, pack, unpack
from strandline.kernel.watermarks import Control, control_from_facts, control_to_facts
from strandline.model.lookup_join import LookupJoin, OnFailure
from strandline.plan.stages import KeyedStep, Scan, Stages
from strandline.plan.stories.story_pipeline import StoryPipeline
from strandline.ports.register_data_source import registered
from strandline.spark.batch_properties import current_batch, send
from strandline.spark.tasks.key_group_processor import KeyGroupProcessor, Play
from strandline.spark.translate import with_native

_FORMAT: Final = "strandline_packets"
_ANSWER_WITHIN_SECONDS: Final = 300
_LOOK_EVERY_SECONDS: Any = 0.05  # Spark accepts fractions of a second, though its annotation says int
_SCAN: Final = "scan:"
_PLACE: Final = "place"
"""Fact of a delivered block: the address that it would have in a job, which orders the output."""
_STORIES: Final = 1 << 20
"""Upper bound of the addresses of one story."""

Told = tuple[Packet, Batch]


@dataclass(frozen=True)
class Played:
    """The stages of one story of a query, and the numbers by which its key groups are addressed."""

    number: int
    stages: Stages

    @cached_property
    def groups(self) -> Mapping[int, tuple[KeyedStep, int]]:
        """Return the key groups by their number in the query."""
        found = [(step, group) for step in self.stages.steps for group in range(step.groups)]
        return {self.number * _STORIES + place: each for place, each in enumerate(found)}

    @cached_property
    def _numbers(self) -> Mapping[int, int]:
        return {address(step, group): number for number, (step, group) in self.groups.items()}

    def sent(self, blocks: Blocks) -> Blocks:
        """Return blocks with the numbers of the query for addresses; those for delivery keep theirs as a fact."""
        return [
            (self._numbers[to], block)
            if to in self._numbers
            else (-1 - self.number, replace(block, facts={**block.facts, _PLACE: to}))
            for to, block in blocks
        ]


class Carrier:
    """Run one Spark query for many players. A batch runs when every player has submitted a packet or left."""

    def __init__(self, spark: SparkSession, stories: Mapping[int, Stages]) -> None:
        self._spark = spark
        self._stories = {number: Played(number, _without_sources(each)) for number, each in stories.items()}
        self._folder = Path(tempfile.mkdtemp(prefix="strandline-play-"))
        self._turn = threading.Condition()
        self._playing = set(self._stories)
        self._packets: dict[int, Told] = {}
        self._answers: dict[int, list[Block]] = {}
        self._batch = 0
        self._delivered = -1
        self._problem: BaseException | None = None
        self._restarting = False
        self._horizons: dict[int, int] = {}
        self._query = self._start()

    @property
    def spark(self) -> SparkSession:
        return self._spark

    def carry(self, story: int, packet: Packet, batch: Batch) -> list[Block]:
        """Submit a packet and wait for its output."""
        with self._turn:
            self._packets[story] = (packet, batch)
            self._run_if_ready()
            done = self._turn.wait_for(lambda: story in self._answers or self._problem, _ANSWER_WITHIN_SECONDS)
            if self._problem is not None:
                raise self._problem
            if not done:
                raise RunError(
                    "Spark did not return a batch", detail=f"batch {self._batch}", hint="check the Spark log"
                )
            return self._answers.pop(story)

    def restart(self) -> None:
        """Restart the query from its checkpoint before the next batch."""
        self._restarting = True

    def leave(self, story: int) -> None:
        """Remove a player that has ended; the others stop waiting for it."""
        with self._turn:
            self._playing.discard(story)
            if self._playing:
                self._run_if_ready()
            else:
                self._query.stop()
                shutil.rmtree(self._folder, ignore_errors=True)

    def _run_if_ready(self) -> None:
        if self._playing and self._packets.keys() >= self._playing:
            packets, self._packets = self._packets, {}
            threading.Thread(target=self._run, args=(self._batch, packets), daemon=True).start()
            self._batch += 1

    def _run(self, batch: int, packets: Mapping[int, Told]) -> None:
        try:
            self._horizons = self._horizons_of(packets)
            if self._restarting:
                self._query.stop()
                self._query, self._restarting = self._start(), False
            staged = self._folder / f"{batch}.tmp"
            staged.write_bytes(_to_file(packets))
            staged.rename(self._folder / f"{batch}.packets")
            while self._delivered < batch:
                # A restart may stop the query after it has delivered, while this thread still waits for the batch.
                if self._query.awaitTermination(_LOOK_EVERY_SECONDS) and self._delivered < batch:
                    raise RunError("the Spark query stopped", hint="see the Spark log")
        except BaseException as problem:  # noqa: BLE001 - every waiting player raises it
            with self._turn:
                self._problem = problem
                self._turn.notify_all()

    def _horizons_of(self, packets: Mapping[int, Told]) -> dict[int, int]:
        """Return the watermark of every step of every story before the batch, by a number for both."""
        return {
            story * _STORIES + number: at
            for story, (_, batch) in packets.items()
            for number, at in batch.horizons.items()
        }

    def _start(self) -> Any:
        name = registered(self._spark, PacketSource)
        packets = self._spark.readStream.format(name).option("folder", str(self._folder)).load()
        stories = self._stories
        carried = packets.mapInArrow(prepare_packets(stories), CARRIER)
        for level in range(1, max(len(each.stages.levels) for each in stories.values()) + 1):
            play, is_here = _level(stories, level)
            carried = carried.groupBy("kg").transformWithState(
                KeyGroupProcessor(play, is_here), CARRIER, "Append", "None"
            )
        writing = carried.writeStream.foreachBatch(self._deliver)
        return writing.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def _deliver(self, frame: DataFrame, batch: int) -> None:
        if batch > self._delivered:
            send(self._spark.sparkContext, Batch(horizons=self._horizons))
        found: dict[int, list[Block]] = {}
        table = frame.toArrow()
        for to, data in zip(table["kg"].to_pylist(), table["block"].to_pylist(), strict=True):
            found.setdefault(-1 - to, []).append(unpack(data, f"story {-1 - to}, output"))
        with self._turn:
            if batch <= self._delivered:
                return  # stopped before Spark committed it, so Spark replays it; its players have the output
            self._delivered = batch
            self._answers.update(found)
            self._turn.notify_all()


def _without_sources(stages: Stages) -> Stages:
    """Return stages whose sources and sinks do not travel to tasks; they may hold connections."""
    return replace(stages, scans=tuple(_without_source(scan) for scan in stages.scans), outputs=())


def _without_source(scan: Scan) -> Scan:
    return replace(scan, source=SourceName(scan.source.name))  # type: ignore[arg-type]


def prepare_packets(stories: Mapping[int, Played]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark runs over packets: each becomes blocks for the key groups of its story."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sent: Blocks = []
        for batch in batches:
            for story, data in zip(batch["story"].to_pylist(), batch["packet"].to_pylist(), strict=True):
                packet = _unpacked(unpack(data, f"packet of story {story}"))
                played = stories[story]
                sent += played.sent(prepared(packet, played.stages, _batch_of(story, packet.clock, packet.tables)))
        if sent:
            numbers = pa.array([to for to, _ in sent], pa.int64())
            blocks = pa.array([pack(block) for _, block in sent], pa.binary())
            yield pa.RecordBatch.from_pydict({"kg": numbers, "block": blocks})

    return run


def _level(stories: Mapping[int, Played], level: int) -> tuple[Play, Callable[[int], bool]]:
    """Return the play function for the key groups of all stories at one level, and a test for their addresses."""
    here = {number for played in stories.values() for number, (step, _) in played.groups.items() if step.level == level}

    def play(to: int, held: Mapping[str, bytes], blocks: Sequence[Block]) -> tuple[Mapping[str, bytes | None], Blocks]:
        story = to // _STORIES
        played = stories[story]
        step, group = played.groups[to]
        writes, sent = play_group(step, group, held, blocks, played.stages.by_number, _batch_of(story))
        return writes, played.sent(sent)

    return play, here.__contains__


def _batch_of(story: int, clock: int | None = None, tables: Mapping[str, Any] | None = None) -> Batch:
    """Return the facts of the batch of one story."""
    known = current_batch().horizons
    return Batch(clock, {to % _STORIES: at for to, at in known.items() if to // _STORIES == story}, tables=tables or {})


def _unpacked(data: Block) -> Packet:
    rows = {int(name.removeprefix(_SCAN)): frame for name, frame in data.frames.items()}
    reports = {name: control_from_facts(each).seen for name, each in data.facts["reports"].items()}
    return Packet(
        rows, data.facts["clock"], reports, data.facts["drain"], frozenset(data.facts["alone"]), data.facts["tables"]
    )


def _packed(packet: Packet) -> bytes:
    reports = {name: control_to_facts(Control(packet.clock, seen)) for name, seen in packet.reports.items()}
    facts = {"reports": reports, "clock": packet.clock, "drain": packet.drain, "alone": sorted(packet.alone)}
    facts["tables"] = packet.tables
    return pack(Block({f"{_SCAN}{number}": rows for number, rows in packet.rows.items()}, facts))


def _to_file(packets: Mapping[int, Told]) -> bytes:
    stories = sorted(packets)
    data = [_packed(packets[story][0]) for story in stories]
    table = pa.table({"story": pa.array(stories, pa.int64()), "packet": pa.array(data, pa.binary())})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


class PacketSource(DataSource):
    """Read a folder of packets, one file per batch."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return "story long, packet binary"

    def streamReader(self, schema: Any) -> "PacketReader":  # noqa: ARG002, N802 - Spark's name
        return PacketReader(Path(self.options["folder"]))


class PacketReader(DataSourceStreamReader):
    """Read packets. The offset is the number of the next file; a batch reads one file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"next": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's name
        ready = (self._folder / f"{start['next']}.packets").exists()
        return {"next": start["next"] + 1} if ready else start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["next"], end["next"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_stream((self._folder / f"{partition.value}.packets").read_bytes()) as reader:
            yield from reader


class SparkPlayer(StagesPlayer):
    """Play one of the stories of a carrier."""

    def __init__(self, carrier: Carrier, story: int, pipeline: StoryPipeline) -> None:
        super().__init__(pipeline)
        operations = [each for step in self._stages.steps for route in step.routes for each in route.operations]
        if any(isinstance(each, LookupJoin) for each in operations):
            raise Unsupported("stories on Spark enrich rows of sources only", hint="play the story on kernel")
        self._carrier, self._story = carrier, story

    def _narrowed(self, scan: Scan, rows: pl.DataFrame) -> pl.DataFrame:
        """Let Spark run the SQL of a pipeline, as in a job."""
        if not scan.native:
            return rows
        frame = self._carrier.spark.createDataFrame(rows.to_arrow(compat_level=pl.CompatLevel.oldest()))
        return pl.DataFrame(with_native(frame, scan).toArrow())

    def _carry(self, packet: Packet, batch: Batch) -> Gathered:
        # In a task this error would end the query of all stories.
        for join in self._stages.lookups if packet.rows else ():
            if join.on_failure is OnFailure.WAIT and packet.tables.get(join.table.name) is None:
                raise LookupUnavailable(f"{join.table.name} does not answer")
        blocks = self._carrier.carry(self._story, packet, batch)
        return gather(sorted(blocks, key=lambda block: place(block.facts[_PLACE])))

    def restart(self) -> Self:
        """Restart the query from its checkpoint; this player continues."""
        self._carrier.restart()
        return self

    def close(self) -> None:
        """Leave the carrier, so that other stories do not wait for this one."""
        self._carrier.leave(self._story)
