"""Return a pipeline's output as a streaming DataFrame in the user's session.

Panes, late elements and dead letters come in one stream with the column `kind`. Nothing is dropped.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame

from strandline.errors import InvalidStep
from strandline.execution.keyed_step import instant
from strandline.kernel.blocks.block import END, START, unpack
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.window.panes import FIRST, INDEX, LAST, NONSPECULATIVE, RETRACTION, TIMESTAMP, TIMING
from strandline.model.arguments import checked
from strandline.model.ddl import parse
from strandline.plan.columns import PANE, columns_after
from strandline.plan.compile import groups_for, to_stages
from strandline.plan.nodes import Root, outputs_of
from strandline.ports.codecs import DETAIL, RAW, REASON
from strandline.ports.dead_letter_masking import with_raw
from strandline.spark.check_lookups import check_lookups
from strandline.spark.launch.session import require_rocksdb, require_session
from strandline.spark.patches.table import ANY_SESSION, apply_patches
from strandline.spark.portable_functions import require_portable
from strandline.spark.sources.heartbeat import heartbeat
from strandline.spark.translate import translate

KINDS: Final = {"out": "pane", "late": "late", "dead": "dead"}
_FIELDS: Final = (
    "kind string, window_start timestamp, window_end timestamp, timing string, pane_index long, "
    "nonspeculative_index long, is_first boolean, is_last boolean, pane_time timestamp, retraction boolean, "
    "reason string, detail string, raw binary"
)
_NAMES: Final = {
    TIMING: "timing", INDEX: "pane_index", NONSPECULATIVE: "nonspeculative_index", FIRST: "is_first", LAST: "is_last",
    RETRACTION: "retraction", REASON: "reason", DETAIL: "detail", RAW: "raw",
}  # fmt: skip


@checked
def to_dataframe(root: Root, spark: Any, *, heartbeat_seconds: float = 2) -> DataFrame:
    """Return the rows of a pipeline's output: `kind` is "pane", "late" or "dead". Its sink is not opened."""
    if len(outputs_of(root)) > 1:
        raise InvalidStep("a DataFrame holds one output", hint="make one of each pipeline")
    require_rocksdb(require_session(spark))
    require_portable(root)
    apply_patches(spark, names=ANY_SESSION)
    stages = to_stages(root, groups_for(spark.sparkContext.defaultParallelism))
    check_lookups(stages, None)
    if any(each.pin for each in stages.lookups):
        raise InvalidStep("pinned answers need a job's folder", hint="leave pin out, or run() the pipeline")
    known = columns_after(outputs_of(root)[0].of)
    columns = {name: kind for name, kind in known.items() if name not in PANE}
    unknown = [name for name, kind in columns.items() if kind is None]
    if unknown:
        raise InvalidStep(
            f"the type of {unknown[0]!r} is not known before Spark looks at it",
            hint="map(function, columns) says its types; or run() the pipeline, which does not need them",
        )
    ticks = heartbeat(spark, every=heartbeat_seconds, drain=Path(mkdtemp(prefix="strandline-")) / "drain")
    carried = translate(stages, spark, lambda: ticks, clock=True)
    users = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    return carried.mapInArrow(_unpacked({name: kind or "" for name, kind in columns.items()}), f"{users}, {_FIELDS}")


def _unpacked(columns: dict[str, str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch["block"].to_pylist():
                for name, frame in unpack(data, "output").frames.items():
                    shaped = shape(frame, KINDS[name.partition(":")[0]], columns)
                    yield from shaped.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()

    return run


def shape(frame: pl.DataFrame, kind: str, columns: dict[str, str]) -> pl.DataFrame:
    """Give rows of any kind the same columns."""
    if kind == "late":
        frame = with_raw(frame)
    found = frame.with_columns(
        pl.lit(kind).alias("kind"),
        *(
            instant(own).alias(name)
            for own, name in ((START, "window_start"), (END, "window_end"))
            if own in frame.columns
        ),
        *([instant(TIMESTAMP).alias("pane_time")] if TIMESTAMP in frame.columns else []),
    ).rename(_NAMES, strict=False)
    types = {name: to_polars(given) for name, given in {**columns, **parse(_FIELDS)}.items()}
    have = [
        pl.col(name).cast(given) if name in found.columns else pl.lit(None, given).alias(name)
        for name, given in types.items()
    ]
    return found.select(have)
