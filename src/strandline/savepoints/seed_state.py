"""Write state into a new Spark checkpoint, by running one batch that reads blocks and stores them.

Spark can write state only by a stateful query. So a query with the state operators of the job runs once over a file of
blocks, and its checkpoint becomes the job's. The offsets in its offset log are replaced by those of the savepoint.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from strandline.errors import SavepointError
from strandline.spark.tasks.state_map import BLOCK, PLACE

Blocks = Mapping[int, Mapping[str, bytes]]
"""Blocks by address and place."""

_SEED: Final = "kg long, place string, block binary"
_KINDS: Final = {"kg": pl.Int64, "place": pl.String, "block": pl.Binary}
_PARTITIONS: Final = "spark.sql.shuffle.partitions"


class Seeder(StatefulProcessor):
    """Stores the blocks of its level, and forwards the others."""

    def __init__(self, is_own: Callable[[int], bool]) -> None:
        self._is_own = is_own

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("blocks", PLACE, BLOCK)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        own = self._is_own(int(key[0]))
        for row in rows:
            if own:
                self._state.updateValue((row.place,), (bytes(row.block),))
            else:
                yield Row(kg=row.kg, place=row.place, block=bytes(row.block))

    def close(self) -> None:
        pass


def seed(spark: SparkSession, folder: Path, levels: Sequence[frozenset[int]], blocks: Blocks, partitions: int) -> None:
    """Make `folder` a Spark checkpoint after batch 0, with these blocks as its state."""
    seeds = folder.with_name("seed")
    seeds.mkdir()
    rows = [(to, place, data) for to, held in sorted(blocks.items()) for place, data in sorted(held.items())]
    pl.DataFrame(rows, schema=_KINDS, orient="row").write_parquet(seeds / "blocks.parquet")
    with _partitions(spark, partitions):
        stream = spark.readStream.schema(_SEED).parquet(str(seeds))
        for addresses in levels:
            seeder = Seeder(addresses.__contains__)
            stream = stream.groupBy("kg").transformWithState(seeder, _SEED, "Append", "None")
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(folder))
        try:
            writer.trigger(availableNow=True).start().awaitTermination()
        except PySparkException as problem:
            raise SavepointError(
                "Spark could not store the state", detail=str(problem).partition("\n")[0][:300]
            ) from None
    if not (folder / "commits" / "0").exists():
        raise SavepointError("Spark stored the state and did not commit it", hint="see its log")
    shutil.rmtree(seeds)


def place_at(folder: Path, positions: Sequence[str], clock: int) -> None:
    """Replace the offsets and the clock of batch 0 by those of the savepoint."""
    entry = folder / "offsets" / "0"
    version, facts, *_ = entry.read_text().splitlines()
    changed = json.loads(facts) | {"batchTimestampMs": clock}
    entry.with_name(".0.crc").unlink(missing_ok=True)
    entry.write_text("\n".join([version, json.dumps(changed), *positions]))
    shutil.rmtree(folder / "sources", ignore_errors=True)


@contextlib.contextmanager
def _partitions(spark: SparkSession, number: int) -> Iterator[None]:
    """Set the number of partitions, which a query keeps forever."""
    before = spark.conf.get(_PARTITIONS)
    spark.conf.set(_PARTITIONS, str(number))
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(_PARTITIONS, before)
