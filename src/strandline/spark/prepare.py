"""mapInArrow: in every partition, records become blocks, one for each key group, with what was seen of the sources."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import polars as pl
import pyarrow as pa
from pyspark import TaskContext

from strandline.kernel.blocks import AT, OFFSET, PARTITION, Block, pack
from strandline.kernel.output import Counts, counts_to_facts
from strandline.kernel.prepare import prepare
from strandline.kernel.watermarks import Control, Seen, control_to_facts
from strandline.plan.stages import Prepare
from strandline.spark.ports import DETAIL, ENDED, RAW, REASON, RECORD, Decoder

HORIZON: Final = "strandline.horizon"
"""The local property by which the driver tells every task the watermark before the batch."""

CARRIER: Final = "kg long, block binary"
_SCHEMA: Final = pa.schema([("kg", pa.int64()), ("block", pa.binary())])

NO_EVENT_TIME: Final = "no_event_time"

Batches = Iterator[pa.RecordBatch]


def prepare_task(stage: Prepare, event_time: str, decoder: Decoder) -> Callable[[Batches], Batches]:
    """The function that Spark runs over the raw records of one partition."""

    def run(batches: Batches) -> Batches:
        tables = [batch for batch in batches if batch.num_rows]
        if tables:
            raw = pl.DataFrame(pa.Table.from_batches(tables))
            yield from _carried(_pack(raw, stage, event_time, decoder, _horizon()))

    return run


def _horizon() -> int | None:
    context = TaskContext.get()
    said = None if context is None else context.getLocalProperty(HORIZON)
    return None if said is None else int(said)


def _pack(
    raw: pl.DataFrame, stage: Prepare, event_time: str, decoder: Decoder, horizon: int | None
) -> dict[int, Block]:
    """A block for every key group: all get the control, some their elements, the first the dead letters."""
    records = raw.filter(pl.col("mark") == RECORD).select(
        pl.col("partition").alias(PARTITION), pl.col("offset").alias(OFFSET), pl.col("value").alias(RAW)
    )
    rows, dead = _decode(records, event_time, decoder)
    found = prepare(rows.drop(RAW), stage.keys, stage.step, stage.groups, horizon)
    facts = {"control": control_to_facts(_control(raw, rows))}
    counts = Counts(read=records.height, dead=dead.height)
    blocks = {}
    for group in range(stage.groups):
        frames: dict[str, pl.DataFrame] = dict(found[group].frames) if group in found else {}
        if group == 0 and dead.height:
            frames["dead"] = dead
        mine = counts if group == 0 else Counts()
        blocks[group] = Block(frames, {**facts, "counts": counts_to_facts(mine)})
    return blocks


def _decode(records: pl.DataFrame, event_time: str, decoder: Decoder) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Elements with their event time in milliseconds, and the records that are none."""
    decoded = decoder.decode(records)
    # Division floors, so that times before the epoch round the same way as times after it.
    rows = decoded.rows.with_columns((pl.col(event_time).dt.timestamp("us") // 1000).alias(AT))
    timeless = rows.filter(pl.col(AT).is_null()).select(
        PARTITION, OFFSET, RAW,
        pl.lit(NO_EVENT_TIME).alias(REASON), pl.lit(f"{event_time} is missing or unreadable").alias(DETAIL),
    )  # fmt: skip
    return rows.filter(pl.col(AT).is_not_null()), pl.concat([decoded.dead, timeless])


def _control(raw: pl.DataFrame, rows: pl.DataFrame) -> Control:
    """What this task saw of each partition, and the batch's clock."""
    mark = pl.col("mark")
    heard = raw.group_by("partition").agg((mark == RECORD).sum().alias("rows"), (mark == ENDED).any())
    highest = dict(rows.group_by(PARTITION).agg(pl.col(AT).max()).iter_rows())
    seen = [
        Seen(partition, int(count), highest.get(partition), bool(finished))
        for partition, count, finished in heard.sort("partition").iter_rows()
    ]
    clock: Any = raw["clock"].dt.timestamp("ms").max()
    return Control(int(clock), tuple(seen))


def _carried(blocks: dict[int, Block]) -> Batches:
    packed = [pack(block) for block in blocks.values()]
    yield pa.RecordBatch.from_arrays(
        [pa.array(list(blocks), pa.int64()), pa.array(packed, pa.binary())], schema=_SCHEMA
    )
