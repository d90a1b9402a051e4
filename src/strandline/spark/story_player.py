"""Play stories on Spark: many stories in one query, each in its own key groups, in lockstep.

One move of every story makes one micro-batch. Each player runs in a thread and waits for the others. The carrier writes
their packets to a folder, a streaming source reads one file per batch, and the carrier hands the output back. A restart
of any story stops the query and starts it again from its checkpoint.
"""

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from strandline.errors import RunError
from strandline.execution.block_addresses import CARRIER
from strandline.execution.prepare import Blocks
from strandline.kernel.blocks.block import Block, pack, unpack
from strandline.kernel.output import Counts, counts_to_facts, to_block
from strandline.kernel.player import GROUPS, BlockPlayer, Packet, prepared
from strandline.kernel.step import StepSpec, step
from strandline.kernel.watermarks import Rule, control_from_facts, control_to_facts
from strandline.model.operators import Operator
from strandline.ports.register_data_source import registered
from strandline.spark.tasks.key_group_processor import KeyGroupProcessor, Play

_FORMAT: Final = "strandline_packets"
_ANSWER_WITHIN_SECONDS: Final = 300
_LOOK_EVERY_SECONDS: Any = 0.05  # Spark accepts fractions of a second, though its annotation says int
_ELEMENTS: Final = "elements"

StepSpecs = Mapping[int, StepSpec]


class Carrier:
    """Run one Spark query for many players. A batch runs when every player has submitted a packet or left."""

    def __init__(self, spark: SparkSession, specs: StepSpecs) -> None:
        self._spark = spark
        self._specs = dict(specs)
        self._folder = Path(tempfile.mkdtemp(prefix="strandline-play-"))
        self._turn = threading.Condition()
        self._playing = set(self._specs)
        self._packets: dict[int, Packet] = {}
        self._answers: dict[int, list[Block]] = {}
        self._batch = 0
        self._delivered = -1
        self._problem: BaseException | None = None
        self._restarting = False
        self._query = self._start()

    def carry(self, story: int, packet: Packet) -> list[Block]:
        """Submit a packet and wait for its output."""
        with self._turn:
            self._packets[story] = packet
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

    def _run(self, batch: int, packets: Mapping[int, Packet]) -> None:
        try:
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

    def _start(self) -> Any:
        name = registered(self._spark, PacketSource)
        packets = self._spark.readStream.format(name).option("folder", str(self._folder)).load()
        specs = self._specs
        blocks = packets.mapInArrow(prepare_packets(specs), CARRIER)
        played = blocks.groupBy("kg").transformWithState(
            KeyGroupProcessor(_play(specs), lambda _: True), CARRIER, "Append", "None"
        )
        writing = played.writeStream.foreachBatch(self._deliver)
        return writing.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def _deliver(self, frame: DataFrame, batch: int) -> None:
        found: dict[int, list[Block]] = {}
        table = frame.toArrow().sort_by("kg")
        for group, data in zip(table["kg"].to_pylist(), table["block"].to_pylist(), strict=True):
            found.setdefault(group // GROUPS, []).append(unpack(data, f"key group {group}, output"))
        with self._turn:
            if batch <= self._delivered:
                return  # stopped before Spark committed it, so Spark replays it; its players have the output
            self._delivered = batch
            self._answers.update(found)
            self._turn.notify_all()


def prepare_packets(specs: StepSpecs) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark runs over packets: each becomes one block per key group of its story."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups: list[int] = []
        blocks: list[bytes] = []
        for batch in batches:
            for story, data in zip(batch["story"].to_pylist(), batch["packet"].to_pylist(), strict=True):
                for group, block in _blocks(unpack(data, f"packet of story {story}"), specs[story]).items():
                    groups.append(story * GROUPS + group)
                    blocks.append(pack(block))
        if groups:
            yield pa.RecordBatch.from_pydict(
                {"kg": pa.array(groups, pa.int64()), "block": pa.array(blocks, pa.binary())}
            )

    return run


def _play(specs: StepSpecs) -> Play:
    """Return the play function for key groups of stories."""

    def play(to: int, held: Mapping[str, bytes], blocks: Sequence[Block]) -> tuple[Mapping[str, bytes | None], Blocks]:
        controls = [control_from_facts(block.facts["control"]) for block in blocks]
        stepped = step(held, blocks, controls, specs[to // GROUPS])
        letters = [block.frames["dead"] for block in blocks if "dead" in block.frames]
        return stepped.writes, [(to, to_block(stepped, pl.concat(letters) if letters else None, Counts()))]

    return play


def _blocks(data: Block, spec: StepSpec) -> dict[int, Block]:
    packet = Packet(data.frames.get(_ELEMENTS), control_from_facts(data.facts["control"]), data.facts["horizon"])
    found, dead = prepared(packet, spec)
    facts = {"control": data.facts["control"], "from": "story", "counts": counts_to_facts(Counts())}
    blocks = {}
    for group in range(GROUPS):
        block = found.get(group, Block())
        letters = {"dead": dead} if group == 0 and dead is not None and dead.height else {}
        blocks[group] = Block({**block.frames, **letters}, {**block.facts, **facts})
    return blocks


def _to_file(packets: Mapping[int, Packet]) -> bytes:
    stories = sorted(packets)
    data = []
    for story in stories:
        packet = packets[story]
        frames = {} if packet.elements is None else {_ELEMENTS: packet.elements}
        data.append(pack(Block(frames, {"control": control_to_facts(packet.control), "horizon": packet.horizon})))
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


class SparkPlayer(BlockPlayer):
    """Play one of the stories of a carrier."""

    def __init__(self, carrier: Carrier, story: int, operator: Operator, rule: Rule, **options: Any) -> None:
        super().__init__(operator, rule, **options)
        self._carrier, self._story = carrier, story

    def _carry(self, packet: Packet) -> Iterable[Block]:
        return self._carrier.carry(self._story, packet)

    def restart(self) -> Self:
        """Restart the query from its checkpoint; this player continues."""
        self._carrier.restart()
        return self

    def close(self) -> None:
        """Leave the carrier, so that other stories do not wait for this one."""
        self._carrier.leave(self._story)
