"""Our data sources, made known to a session under a name that it can read from."""

import uuid

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource


def registered(spark: SparkSession, source: type[DataSource]) -> str:
    """The name by which this session knows the source."""
    try:
        spark.dataSource.register(source)
    except AnalysisException:
        # Another session of the same context has the name, and Spark gives it to one of them only.
        name = f"{source.name()}_{uuid.uuid4().hex}"
        spark.dataSource.register(type(name, (source,), {"name": classmethod(lambda _: name)}))
        return name
    return source.name()
