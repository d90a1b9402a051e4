"""Hadoop keeps with each of its settings where that was read. Here it forgets, since nobody asks.

There are hundreds, and Spark copies all of them several times a batch; twice a batch it writes them for its tasks, and
then each such place is compressed by itself. Half of them say how YARN runs a cluster where nobody has said anything of
it, and are forgotten too. There is no setting for it. Only a Spark of our own is told, in which there is no YARN.
"""

from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_CONFIGURATION: Final = "org.apache.hadoop.conf.Configuration"
_OF_NOBODY: Final = "yarn-default.xml"


def spare_traces(spark: SparkSession) -> None:
    """Settings are copied and written as they are, and no more; where that cannot be said, with all that was kept."""
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 - Spark has no other way
    try:
        conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
        conf.size()  # what is read at its first use is read now, or it would come after
        held = jvm.java.lang.Class.forName(_CONFIGURATION)  # type: ignore[union-attr]
        places, said = held.getDeclaredField("updatingResource"), held.getDeclaredField("properties")
        places.setAccessible(True)
        said.setAccessible(True)
        defaults = jvm.org.apache.hadoop.conf.Configuration(False)  # type: ignore[union-attr]
        defaults.addResource(_OF_NOBODY)
        defaults.size()
        # What somebody has said otherwise is another entry, and stays.
        said.get(conf).entrySet().removeAll(said.get(defaults).entrySet())
        places.set(conf, jvm.java.util.concurrent.ConcurrentHashMap())  # type: ignore[union-attr]
    except (Py4JError, TypeError):
        return
