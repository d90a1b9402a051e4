"""Register our Python data sources with a Spark session."""

import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


def registered(spark: "SparkSession", source: "type[DataSource]") -> str:
    """Register a data source class and return the format name under which this session can read it."""
    try:
        spark.dataSource.register(source)
    except Exception as error:
        if not _is_name_taken(error):
            raise
        # Another session of the same context registered the name, and Spark gives it to one session only.
        name = f"{source.name()}_{uuid.uuid4().hex}"
        spark.dataSource.register(type(name, (source,), {"name": classmethod(lambda _: name)}))
        return name
    return source.name()


def _is_name_taken(error: Any) -> bool:
    """Whether an error is Spark's AnalysisException. Compared by name: this package does not import PySpark."""
    return type(error).__name__ == "AnalysisException"
