"""Python's collector in Spark's workers, which are asked for a whole collection after every task.

That walks over whatever was ever imported: Polars, Arrow, pandas and Spark's own, a fifth of the time that a worker
takes. None of it becomes garbage, so it is set apart. See docs/decisions/0022.
"""

import gc
from typing import Final

_first_tasks: Final = iter(range(3))
"""Not only the first: some things are imported on the way."""


def spare_imports() -> None:
    """What lives now is not looked at again; it is still let go as soon as nobody names it."""
    if next(_first_tasks, None) is not None:
        gc.freeze()
