"""Drive sinks in the contract suite: a pipeline that ends in them, panes, late elements, dead letters, and ledger
entries."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

import strandline as sl
from strandline.kernel.blocks.block import AT, END, OFFSET, PARTITION, START
from strandline.kernel.output import Output
from strandline.kernel.step import WATERMARK
from strandline.kernel.watermarks import Progress
from strandline.kernel.window.panes import FIRST, INDEX, LAST, NONSPECULATIVE, RETRACTION, TIMESTAMP, TIMING
from strandline.plan.compile import to_stages
from strandline.plan.stages import Stages
from strandline.ports.codecs import DETAIL, RAW, REASON
from strandline.ports.ledger import LedgerEntry
from strandline.ports.sinks import OpenSink, SparkSink
from tests.contracts.stores import Store
from tests.plan.endpoints import PaperSource, scores


def stages(sink: SparkSink, keys: tuple[str, ...] = ("team",), **names: Any) -> Stages:
    """The stages of a pipeline into this sink."""
    source = PaperSource(columns=", ".join([*(f"`{key}` string" for key in keys), "score long, at timestamp"]))
    panes = scores(source).event_time("at", sl.monotone()).key_by(*keys).window(sl.tumbling(seconds=10))
    return to_stages(panes.aggregate(**(names or {"total": sl.sum("score")})).write(sink).root)


def opened(
    store: Store,
    table: str = "totals",
    keys: tuple[str, ...] = ("team",),
    asked: Mapping[str, Any] | None = None,
    names: Mapping[str, Any] | None = None,
) -> OpenSink:
    """Open the store's sink; `asked` holds its options, `names` are the columns of the panes."""
    definition = store.sink(table, **(asked or {}))
    return definition.open(stages(definition, keys, **(names or {})).outputs[0])


def pane(team: str | None, total: int | None, index: int = 0, *, start: int = 0, taken_back: bool = False) -> Any:
    return {
        "team": team, START: start, END: start + 10_000, "total": total, TIMING: "early", INDEX: index,
        NONSPECULATIVE: -1, FIRST: index == 0, LAST: False, TIMESTAMP: start + 9_999, RETRACTION: taken_back,
    }  # fmt: skip


def panes(*rows: Any) -> Output:
    return Output(pl.DataFrame(list(rows), infer_schema_length=None), progress=Progress(5_000, 9_000))


def late(team: str, score: int) -> pl.DataFrame:
    at = datetime(1970, 1, 1, 0, 0, 1, 500_900, tzinfo=UTC)
    return pl.DataFrame({
        "team": [team], "score": [score], "at": [at], AT: [1_500], PARTITION: ["3"], OFFSET: [17],
        START: [0], END: [10_000], REASON: ["expired"], WATERMARK: [25_000],
    })  # fmt: skip


DEAD = pl.DataFrame({PARTITION: ["0"], OFFSET: [4], RAW: [b"\x00\xff"], REASON: ["undecodable"], DETAIL: ["not JSON"]})


CREATED = (
    "team varchar(9), window_start timestamp, window_end timestamp, total bigint, timing varchar(9), "
    "pane_index bigint, nonspeculative_index bigint, is_first boolean, is_last boolean, pane_time timestamp, "
    "retraction boolean, batch bigint"
)
"""A table of panes as a user created it."""


def entry(
    sink: OpenSink, batch: int, *, lineage: str = "mine", digest: str = "d", epoch: int | None = None
) -> LedgerEntry:
    return LedgerEntry(lineage, sink.claim(lineage) if epoch is None else epoch, batch, digest)
