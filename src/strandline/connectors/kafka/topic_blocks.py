"""Read topics with many records packed into one Spark row.

A Spark row per record costs more than reading the record from the broker. Spark's Kafka source is unchanged except for
its rows, which `java/TopicBlocks.java` makes; `scripts/java_classes.py` compiles it. Sessions get the class from the
jars that they are given. See docs/decisions/0048.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from strandline.ports.raw_records import PACKED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE: Final = "strandline.TopicBlocks"
"""The name of this Spark data source."""
_WITH, _LARGEST, _KEPT = "strandline.with", "strandline.largest", "strandline.kept"


def is_there(spark: "SparkSession") -> bool:
    """Whether this Spark session has the class, and reads topics in the way that the class relies on."""
    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]  # noqa: SLF001 - Spark has no other way
    try:
        return bool(loader.loadClass(SOURCE).newInstance().fits())
    except Py4JError:
        return False


Known = Sequence[tuple[str, str]]
"""Metadata columns as (Spark's name, our name)."""


def options(known: Known, largest: int | None, kept: int) -> dict[str, str]:
    """Options of the data source: columns beside the values, the largest whole value, and how much is kept of longer
    ones."""
    sizes = {} if largest is None else {_LARGEST: str(largest), _KEPT: str(kept)}
    return {_WITH: ",".join(field for field, _ in known), **sizes}


def packed(frame: "DataFrame", known: Known, *, cut: bool) -> "DataFrame":
    """Name the packed columns as `unpacked` expects them."""
    columns = ["topic", "partition", "offset", "value", *(["size"] if cut else [])]
    renamed = [f"{column} as `{PACKED}{column}`" for column in columns]
    return frame.selectExpr(*renamed, *(f"{column} as `{PACKED}{column}:{name}`" for column, name in known))
