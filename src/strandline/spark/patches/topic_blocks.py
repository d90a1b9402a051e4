"""Switch on the Kafka source that packs many records into one Spark row (decision 0048).

`java/TopicBlocks.java` extends internal classes of Spark's Kafka source and changes its rows only. Its jar is one of
those that sessions are given. This module tells connectors through the session's configuration whether it works.
"""

from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from strandline.ports.raw_records import TOPIC_BLOCKS
from strandline.spark.patches.jvm_access import first_line, loaded_class

SOURCE: Final = "strandline.TopicBlocks"


def enable_topic_blocks(spark: SparkSession) -> str:
    """Tell connectors that this session can read packed rows; returns why it cannot, or an empty text."""
    problem = why_not(spark)
    spark.conf.set(TOPIC_BLOCKS, "false" if problem else "true")
    return problem


def why_not(spark: SparkSession) -> str:
    """Return why this Spark cannot use the class, or an empty text."""
    found = loaded_class(spark, SOURCE)
    if found is None:
        return "the session does not have the jar topic-blocks.jar"
    try:
        return "" if found.newInstance().fits() else "this Spark reads topics with other classes"
    except Py4JError as problem:
        return first_line(problem)
