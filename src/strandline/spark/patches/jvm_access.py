"""Reach the JVM through the private attributes of PySpark: `_gateway`, `_jvm` and `_jsc`.

PySpark has no public name for any of these. All other modules go through this one.
"""

from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession


def jvm_of(spark: SparkSession) -> Any:
    """Return py4j's view of the JVM: packages and classes are its attributes."""
    return spark.sparkContext._jvm  # noqa: SLF001


def hadoop_configuration(spark: SparkSession) -> Any:
    """Return the Hadoop configuration that all jobs of this Spark start from."""
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration()  # noqa: SLF001


def status_store(spark: SparkSession) -> Any:
    """Return Spark's store of the state of jobs, stages and tasks."""
    context: Any = spark.sparkContext
    return context._jsc.sc().statusStore()  # noqa: SLF001


def new_array(spark: SparkSession, kind: Any, length: int) -> Any:
    """Make a Java array."""
    context: Any = spark.sparkContext
    return context._gateway.new_array(kind, length)  # noqa: SLF001


def scala_object(package: Any, name: str) -> Any:
    """Return the instance of a Scala `object` in a package."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def loaded_class(spark: SparkSession, name: str) -> Any | None:
    """Load a class the way Spark's threads do; None if the session's jars do not have it."""
    try:
        return jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JError:
        return None


def has_jvm() -> bool:
    """Whether this process has started a JVM, or is connected to one."""
    return SparkContext._gateway is not None  # noqa: SLF001


def has_context() -> bool:
    """Whether a SparkContext runs in this process."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001


def connect_to_submitted_jvm() -> None:
    """Connect to the JVM that spark-submit started, so that SparkConf reads its configuration."""
    SparkContext._ensure_initialized()  # noqa: SLF001


def use_gateway(gateway: Any) -> bool:
    """Make later sessions of this process use this JVM; False if the process has another one already."""
    with SparkContext._lock:  # noqa: SLF001
        if SparkContext._gateway is not None:  # noqa: SLF001
            return False
        SparkContext._gateway = gateway  # noqa: SLF001
        SparkContext._jvm = gateway.jvm  # noqa: SLF001
        return True


def first_line(problem: Exception) -> str:
    """Return the first line of an error's text."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
