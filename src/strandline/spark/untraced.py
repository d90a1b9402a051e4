"""Hadoop keeps with each of its settings where that was read. Here it forgets, since nobody asks.

There are hundreds, and Spark copies all of them several times a batch; twice a batch it writes them for its tasks, and
then each such place is compressed by itself. There is no setting for it. Only a Spark of our own is told.
"""

from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_CONFIGURATION: Final = "org.apache.hadoop.conf.Configuration"


def spare_traces(spark: SparkSession) -> None:
    """Settings are copied and written as they are, and no more; where that cannot be said, with all that was kept."""
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 - Spark has no other way
    try:
        conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
        conf.size()  # what is read at its first use is read now, or it would come after
        places = jvm.java.lang.Class.forName(_CONFIGURATION).getDeclaredField("updatingResource")  # type: ignore[union-attr]
        places.setAccessible(True)
        places.set(conf, jvm.java.util.concurrent.ConcurrentHashMap())  # type: ignore[union-attr]
    except (Py4JError, TypeError):
        return
