"""Find failed tasks of a job's current batch, which Spark runs again, in Spark's status store.

The store is there without a UI too. Spark's public status tracker counts failed tasks, but has no errors.
"""

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from strandline.spark.patches.jvm_access import jvm_of, status_store


def task_failures(spark: SparkSession, groups: Callable[[], frozenset[str]]) -> Callable[[], tuple[int, str] | None]:
    """Return a function that counts the failed tasks of active jobs in these job groups, with the error of one.

    A streaming query runs its jobs in a group that is called by its run id.
    """
    jvm, store = jvm_of(spark), status_store(spark)

    def find() -> tuple[int, str] | None:
        try:
            as_java = jvm.scala.jdk.javaapi.CollectionConverters.asJava
            for stage in as_java(store.activeStages()):
                failed = int(stage.numFailedTasks())
                if failed and _group_of(store, as_java, stage) in groups():
                    return failed, _error_of(store, as_java, jvm, stage)
        except (Py4JError, OSError):
            pass  # Spark is gone, or this Spark has another store
        return None

    return find


def _group_of(store: Any, as_java: Callable[[Any], Any], stage: Any) -> str | None:
    for job in as_java(store.jobsList(None)):
        if stage.stageId() in [*as_java(job.stageIds())]:
            group = job.jobGroup()
            return str(group.get()) if group.isDefined() else None
    return None


def _error_of(store: Any, as_java: Callable[[Any], Any], jvm: Any, stage: Any) -> str:
    names = jvm.org.apache.spark.status.api.v1
    order, states = names.TaskSorting.DECREASING_RUNTIME, [names.TaskStatus.FAILED]
    for task in as_java(store.taskList(stage.stageId(), stage.attemptId(), 0, 1, order, states)):
        message = task.errorMessage()
        if message.isDefined():
            return str(message.get())
    return "no reason given"
