"""Read topics with many records packed into one Spark row.

A Spark row per record costs more than reading the record from the broker. Spark's Kafka source is unchanged except for
its rows, which `java/TopicBlocks.java` makes; `scripts/java_classes.py` compiles it. Sessions get the class from the
jars that they are given. See docs/decisions/0048.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from strandline.ports.packed_topics import can_pack
from strandline.ports.raw_records import PACKED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE: Final = "strandline.TopicBlocks"
"""The name of this Spark data source."""
_WITH, _LARGEST, _KEPT, _CORES = "strandline.with", "strandline.largest", "strandline.kept", "strandline.cores"


def is_enabled(spark: "SparkSession") -> bool:
    """Whether this session can read packed rows."""
    return can_pack(spark)


Known = Sequence[tuple[str, str]]
"""Metadata columns as (Spark's name, our name)."""


def options(known: Known, largest: int | None, kept: int, cores: int) -> dict[str, str]:
    """Options of the data source: columns beside the values, the largest whole value, and how much is kept of longer
    ones. With more partitions than `cores`, a task reads several."""
    sizes = {} if largest is None else {_LARGEST: str(largest), _KEPT: str(kept)}
    return {_WITH: ",".join(field for field, _ in known), _CORES: str(cores), **sizes}


def packed(frame: "DataFrame", known: Known, *, cut: bool) -> "DataFrame":
    """Name the packed columns as `unpacked` expects them."""
    columns = ["topic", "partition", "offset", "value", *(["size"] if cut else [])]
    renamed = [f"{column} as `{PACKED}{column}`" for column in columns]
    return frame.selectExpr(*renamed, *(f"{column} as `{PACKED}{column}:{name}`" for column, name in known))
