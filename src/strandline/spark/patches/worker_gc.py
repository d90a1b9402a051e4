"""Keep Python's garbage collector away from imported modules, in Spark's Python workers.

PySpark's daemon runs a full collection after every task. It walks over all objects of Polars, Arrow, pandas and
PySpark: 25 % of a worker's time (decision 0022). Imports never become garbage, so they are frozen.
"""

import gc
from typing import Final

from strandline.spark.patches.switch import is_on

_first_tasks: Final = iter(range(3))
"""Three tasks, because some modules are imported while a task runs."""


def freeze_imports() -> None:
    """Exclude all objects that live now from later collections. Called at the start of each task."""
    if next(_first_tasks, None) is not None and is_on("worker_gc"):
        gc.freeze()


"""The old name, until prepare.py, keyed_step.py and bounded_run.py import the new one."""
