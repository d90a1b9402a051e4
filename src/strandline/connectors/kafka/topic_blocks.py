"""Topics that cross many records to a row. A row of Spark's own for each costs more than to read it from the broker.

Spark's source of Kafka does all that it does anyway; only its rows are ours, made by `java/TopicBlocks.java`, which
`scripts/java_classes.py` compiles. Sessions have it by the jars that they are given. See docs/decisions/0048.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from strandline.ports.packed_topics import can_pack
from strandline.ports.raw_records import PACKED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE: Final = "strandline.TopicBlocks"
"""Its name among Spark's sources."""
_WITH, _LARGEST, _KEPT = "strandline.with", "strandline.largest", "strandline.kept"


def is_enabled(spark: "SparkSession") -> bool:
    """Whether this session can read packed rows."""
    return can_pack(spark)


Known = Sequence[tuple[str, str]]
"""What is known of a record without decoding: what it is called among Spark's columns, and by us."""


def options(known: Known, largest: int | None, kept: int) -> dict[str, str]:
    """What is asked of it: columns beside the values, up to which size these are whole, and how much of longer ones."""
    sizes = {} if largest is None else {_LARGEST: str(largest), _KEPT: str(kept)}
    return {_WITH: ",".join(field for field, _ in known), **sizes}


def packed(frame: "DataFrame", known: Known, *, cut: bool) -> "DataFrame":
    """Its rows, with columns named as `unpacked` knows them."""
    columns = ["topic", "partition", "offset", "value", *(["size"] if cut else [])]
    mine = [f"{column} as `{PACKED}{column}`" for column in columns]
    return frame.selectExpr(*mine, *(f"{column} as `{PACKED}{column}:{name}`" for column, name in known))
