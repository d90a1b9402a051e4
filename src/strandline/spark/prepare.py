"""mapInArrow: in every partition, records become blocks, one for each key group, with what was seen of the sources."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import polars as pl
import pyarrow as pa
from pyspark import TaskContext

from strandline.kernel.blocks import AT, OFFSET, PARTITION, Block, pack
from strandline.kernel.output import Counts, counts_to_facts
from strandline.kernel.prepare import admit, prepare
from strandline.kernel.watermarks import Control, Seen, control_to_facts
from strandline.model.panes import DeadReason
from strandline.model.watermarks import Percentile, Watermark
from strandline.plan.stages import Prepare
from strandline.spark.ports import DETAIL, DRAINED, ENDED, RAW, REASON, RECORD, TICKED, Decoder

HORIZON: Final = "strandline.horizon"
"""The local property by which the driver tells every task the watermark before the batch."""

CARRIER: Final = "kg long, block binary"
_SCHEMA: Final = pa.schema([("kg", pa.int64()), ("block", pa.binary())])

_DETAILS: Final = {
    DeadReason.FUTURE.value: "its time is further ahead of the clock than allowed",
    DeadReason.BAD_GAP.value: "its gap is missing, unreadable or not above zero",
    DeadReason.BAD_WINDOW.value: "its bounds are missing, unreadable or not a span of time",
}

Batches = Iterator[pa.RecordBatch]


def prepare_task(stage: Prepare, event_time: str | None, decoder: Decoder) -> Callable[[Batches], Batches]:
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
    raw: pl.DataFrame, stage: Prepare, event_time: str | None, decoder: Decoder, horizon: int | None
) -> dict[int, Block]:
    """A block for every key group: all get the control, some their elements, the first the dead letters."""
    records = raw.filter(pl.col("mark") == RECORD).select(
        pl.col("partition").alias(PARTITION), pl.col("offset").alias(OFFSET), pl.col("value").alias(RAW)
    )
    rows, dead = _decode(records, event_time, decoder)
    clock: Any = raw["clock"].dt.timestamp("ms").max()
    taken, refused = admit(rows, stage.step, stage.watermark, int(clock))
    why = pl.col(REASON).replace_strict(_DETAILS, default=f"{event_time} is missing or unreadable").alias(DETAIL)
    dead = pl.concat([dead, refused.select(PARTITION, OFFSET, RAW, REASON, why)])
    prepared = prepare(taken.drop(RAW), stage.keys, stage.step, stage.groups, horizon)
    control = {"control": control_to_facts(_control(raw, rows, int(clock), stage.watermark))}
    counts = Counts(read=records.height, dead=dead.height, filtered=prepared.filtered)
    blocks = {}
    for group in range(stage.groups):
        found = prepared.blocks.get(group, Block())
        letters = {"dead": dead} if group == 0 and dead.height else {}
        mine = {"counts": counts_to_facts(counts if group == 0 else Counts())}
        blocks[group] = Block({**found.frames, **letters}, {**found.facts, **control, **mine})
    return blocks


def _decode(records: pl.DataFrame, event_time: str | None, decoder: Decoder) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Elements with their event time in milliseconds, and the records that are none."""
    decoded = decoder.decode(records)
    # Division floors, so that times before the epoch round the same way as times after it.
    at = pl.lit(None, pl.Int64) if event_time is None else pl.col(event_time).dt.timestamp("us") // 1000
    return decoded.rows.with_columns(at.alias(AT)), decoded.dead


def _control(raw: pl.DataFrame, rows: pl.DataFrame, clock: int, watermark: Watermark) -> Control:
    """What this task saw of each partition, and the batch's clock."""
    mark = pl.col("mark")
    told = raw.filter(mark < TICKED)
    heard = told.group_by("partition").agg((mark == RECORD).sum().alias("rows"), (mark == ENDED).any())
    timed = rows.filter(pl.col(AT).is_not_null()).sort(PARTITION, OFFSET)
    highest = dict(timed.group_by(PARTITION).agg(pl.col(AT).max()).iter_rows())
    first = dict(told.group_by("partition").agg(pl.col("offset").min()).iter_rows())
    times = {}
    if isinstance(watermark.generator, Percentile):
        times = {name: tuple(each) for name, each in timed.group_by(PARTITION, maintain_order=True).agg(AT).iter_rows()}
    seen = [
        Seen(name, int(count), highest.get(name), bool(ended), times=times.get(name, ()), first=first[name])
        for name, count, ended in heard.sort("partition").iter_rows()
    ]
    return Control(clock, tuple(seen), drain=bool((raw["mark"] == DRAINED).any()))


def _carried(blocks: dict[int, Block]) -> Batches:
    packed = [pack(block) for block in blocks.values()]
    yield pa.RecordBatch.from_arrays(
        [pa.array(list(blocks), pa.int64()), pa.array(packed, pa.binary())], schema=_SCHEMA
    )
