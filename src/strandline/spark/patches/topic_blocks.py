"""Check for the Kafka source that packs many records into one Spark row (decision 0048).

`java/TopicBlocks.java` extends internal classes of Spark's Kafka source and changes its rows only. Its jar is one of
those that sessions are given. Connectors ask through `ports/packed_topics.py` whether it works.
"""

from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from strandline.ports.packed_topics import provide
from strandline.spark.patches.jvm_access import first_line, loaded_class
from strandline.spark.patches.switch import is_on

SOURCE: Final = "strandline.TopicBlocks"


def probe_topic_blocks(spark: SparkSession) -> str:
    """Return why this session cannot use the class, or an empty text."""
    found = loaded_class(spark, SOURCE)
    if found is None:
        return "the session does not have the jar topic-blocks.jar"
    try:
        return "" if found.newInstance().fits() else "this Spark reads topics with other classes"
    except Py4JError as problem:
        return first_line(problem)


def _can_pack(spark: SparkSession) -> bool:
    return is_on("topic_blocks") and not probe_topic_blocks(spark)


provide(_can_pack)
