"""Before its first Python data source Spark starts a Python to look for others. Where there are none, it is told so.

That takes half a second of every start, and there is no setting for it. Only a Spark of our own is told, whose workers
are this very Python; what finds sources in a user's session is theirs.
"""

from pkgutil import iter_modules
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_FOUND: Final = "pyspark_"
"""Spark looks into modules whose names begin so."""
_MANAGER: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager$"


def spare_search(spark: SparkSession) -> None:
    """Says that nothing is to be found, if that is so; where it cannot be said, Spark searches."""
    if any(module.name.startswith(_FOUND) for module in iter_modules()):
        return
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - Spark has no other way
    try:
        manager = jvm.java.lang.Class.forName(_MANAGER)  # type: ignore[union-attr]
        known = manager.getDeclaredField("dataSourceBuilders")
        known.setAccessible(True)
        the_one = manager.getField("MODULE$").get(None)
        if known.get(the_one).isEmpty():
            none = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()  # type: ignore[union-attr]
            known.set(the_one, jvm.scala.Some(none))  # type: ignore[union-attr]
    except (Py4JError, TypeError):
        return
