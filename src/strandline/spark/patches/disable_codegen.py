"""The servers through which Python reaches its state know no session, hence no setting: Spark writes code for them.

It does so anew in every task, for the few blocks that pass, and that takes longer than all else there. What a thread
without a session goes by is the default of a setting. In a Spark of our own, every session says what it wants itself.
"""

from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_CONF: Final = "SQLConf$"
_MODES: Final = "CodegenObjectFactoryMode$"


def spare_code(spark: SparkSession) -> None:
    """Without a session nothing is compiled; where that cannot be said, Spark compiles, as always."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - Spark has no other way
    try:
        conf = getattr(getattr(jvm.org.apache.spark.sql.internal, _CONF), "MODULE$")  # type: ignore[union-attr]
        modes = getattr(getattr(jvm.org.apache.spark.sql.catalyst.expressions, _MODES), "MODULE$")  # type: ignore[union-attr]
        entry = conf.CODEGEN_FACTORY_MODE()
        default = entry.getClass().getDeclaredField("_defaultValue")
        default.setAccessible(True)
        default.set(entry, modes.NO_CODEGEN())
    except (Py4JError, TypeError):
        return
