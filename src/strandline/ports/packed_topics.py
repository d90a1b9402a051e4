"""Ask whether a Spark session can read topics in packed rows. `spark/patches/topic_blocks.py` answers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_probes: "list[Callable[[SparkSession], bool]]" = []


def provide(probe: "Callable[[SparkSession], bool]") -> None:
    """Register the probe. Called once, when `spark/patches` is imported."""
    _probes[:] = [probe]


def can_pack(spark: "SparkSession") -> bool:
    """Whether this session has the class for packed rows, and it works."""
    return any(probe(spark) for probe in _probes)
