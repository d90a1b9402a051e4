"""Tell Spark that no Python data sources are installed, so that it does not start a Python process to look for them.

Spark looks for modules named `pyspark_*` before its first Python data source; there is no setting against it.
Strandline looks itself, in a Spark that it started, because workers run the same Python.
"""

from pkgutil import iter_modules
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from strandline.spark.patches.jvm_access import first_line, jvm_of, scala_object

_PREFIX: Final = "pyspark_"
_MANAGER: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager$"


def skip_data_source_lookup(spark: SparkSession) -> str:
    """Fill Spark's cache of data sources with nothing, if that is true; returns why it failed, or an empty text."""
    if any(module.name.startswith(_PREFIX) for module in iter_modules()):
        return f"modules named {_PREFIX}* are installed"
    jvm = jvm_of(spark)
    try:
        manager = jvm.java.lang.Class.forName(_MANAGER)
        cache = manager.getDeclaredField("dataSourceBuilders")
        cache.setAccessible(True)
        instance = manager.getField("MODULE$").get(None)
        if cache.get(instance).isEmpty():
            cache.set(instance, jvm.scala.Some(scala_object(jvm.scala.collection.immutable, "Map").empty()))
    except (Py4JError, TypeError) as problem:
        return first_line(problem)
    return ""
