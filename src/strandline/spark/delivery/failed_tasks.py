"""Report errors of tasks while Spark still tries them again.

Spark runs a failed task four times before a batch fails. With a long batch that takes minutes, in which the job would
say nothing. A thread looks at the failed tasks of a batch that takes longer than a second.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from pyspark.sql import SparkSession

from strandline.errors import RunError, StrandlineError, hide_internal_columns
from strandline.spark.error_messages import innermost, translate_error

_LOOK_EVERY_SECONDS: Final = 1.0
_MOST_TASKS: Final = 1_000


@contextmanager
def reporting_failed_tasks(spark: SparkSession, report: Callable[[RunError], None]) -> Iterator[None]:
    """Report the first error of a task, in the user's words, as soon as it is known. Used around the batch's action."""
    group = spark.sparkContext.getLocalProperty("spark.jobGroup.id")
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=[spark, group, ended, report], daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def _watch(spark: SparkSession, group: str | None, ended: threading.Event, report: Callable[[RunError], None]) -> None:
    while not ended.wait(_LOOK_EVERY_SECONDS):
        # Without the status store of this version of Spark, the error is told when the batch has failed.
        with suppress(Exception):
            text = _first_error(spark, group)
            if text is not None and not ended.is_set():
                report(_retried(text))
                return


def _retried(text: str) -> RunError:
    found: StrandlineError | None = translate_error(text)
    if found is None:
        found = RunError("a task of the batch failed", detail=hide_internal_columns(innermost(text)))
    return RunError(f"{found.message}; Spark tries the task again", detail=found.detail, hint=found.hint)


def _first_error(spark: SparkSession, group: str | None) -> str | None:
    """Return the error of a failed task among the active stages of a group of jobs."""
    context = spark.sparkContext
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()  # noqa: SLF001 - it has the messages
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in () if info is None else info.stageIds:
            known = tracker.getStageInfo(stage)
            if known is not None and known.numFailedTasks:
                return _message(store.taskList(stage, known.currentAttemptId, _MOST_TASKS))
    return None


def _message(tasks: Any) -> str | None:
    for place in range(tasks.size()):
        error = tasks.apply(place).errorMessage()
        if error.isDefined():
            return str(error.get())
    return None
