"""Our data sources, made known to a session under a name that it can read from."""

import uuid
from pkgutil import iter_modules
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

_FOUND_BY_SPARK: Final = "pyspark_"
"""Spark looks for data sources in modules whose names begin so."""
_MANAGER: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager$"


def registered(spark: SparkSession, source: type[DataSource]) -> str:
    """The name by which this session knows the source."""
    if not any(module.name.startswith(_FOUND_BY_SPARK) for module in iter_modules()):
        _spare_search(spark)
    try:
        spark.dataSource.register(source)
    except AnalysisException:
        # Another session of the same context has the name, and Spark gives it to one of them only.
        name = f"{source.name()}_{uuid.uuid4().hex}"
        spark.dataSource.register(type(name, (source,), {"name": classmethod(lambda _: name)}))
        return name
    return source.name()


def _spare_search(spark: SparkSession) -> None:
    """Before its first data source Spark starts a Python only to look for others. Where there are none, say so.

    It takes half a second of every start. There is no setting for it; where this does not work, Spark searches.
    """
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
