"""Stop Spark from generating code for the threads that serve state to Python.

These threads have no session and go by the default of `spark.sql.codegen.factoryMode`. So Spark compiles code anew in
every task, for a few blocks. That takes longer than the rest of what the thread does (decision 0038). The patch changes
the default in the JVM. Each session that Strandline starts sets the option itself and is not affected.
"""

from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from strandline.spark.patches.jvm_access import first_line, jvm_of, scala_object

_CONF: Final = "SQLConf"
_MODES: Final = "CodegenObjectFactoryMode"


def disable_state_codegen(spark: SparkSession) -> str:
    """Interpret where no session says otherwise; returns why it failed, or an empty text."""
    sql = jvm_of(spark).org.apache.spark.sql
    try:
        entry = scala_object(sql.internal, _CONF).CODEGEN_FACTORY_MODE()
        default = entry.getClass().getDeclaredField("_defaultValue")
        default.setAccessible(True)
        default.set(entry, scala_object(sql.catalyst.expressions, _MODES).NO_CODEGEN())
    except (Py4JError, TypeError) as problem:
        return first_line(problem)
    return ""
