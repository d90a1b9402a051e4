"""Who watches a job and keeps its numbers: what a job tells such a one."""

from collections.abc import Callable
from typing import Any, Protocol

from strandline.errors import RunError
from strandline.spark.delivery.deliver import Delivered
from strandline.spark.progress import Status


class Observer(Protocol):
    """Hears of all that happens to a job. None of these may raise, or take long."""

    def started(self, query: Any, status: Callable[[], Status], stop: Callable[[], None]) -> None:
        """It runs: what Spark tells of it (lastProgress, recentProgress), how to ask how it is, and how to stop it."""
        ...

    def delivered(self, batch: Delivered, spent: float | None) -> None:
        """A batch is in its sinks; so much of the failure budget is spent."""
        ...

    def waits(self, problem: RunError | None) -> None:
        """A batch waits for a sink or a registry, or no longer does. This may come before the job has started."""
        ...

    def ended(self, status: Status) -> None:
        """It no longer runs. This may come more than once; what was heard before is kept when it returns."""
        ...
