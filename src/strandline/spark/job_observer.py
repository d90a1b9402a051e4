"""Define the callbacks through which a job reports to metrics, logs and the dashboard."""

from collections.abc import Callable
from typing import Any, Protocol

from strandline.errors import RunError
from strandline.spark.delivery.deliver import Delivered
from strandline.spark.progress import Status


class Observer(Protocol):
    """Receives the events of a job. No method may raise or block."""

    def starting(self, status: Callable[[], Status], stop: Callable[[], None]) -> None:
        """The job has a folder, and waits for Spark and its services. `status` and `stop` act on the job."""
        ...

    def started(self, query: Any, status: Callable[[], Status], stop: Callable[[], None]) -> None:
        """The job runs. `query` has Spark's lastProgress and recentProgress; `status` and `stop` act on the job."""
        ...

    def delivered(self, batch: Delivered, spent: float | None) -> None:
        """All sinks hold a batch. `spent` is the used share of the failure budget."""
        ...

    def waits(self, problem: RunError | None) -> None:
        """A batch waits for a sink or a registry; None when it goes on. May come before `started`."""
        ...

    def changed(self) -> None:
        """The status has changed: the job began to wait, or waits no longer."""
        ...

    def ended(self, status: Status) -> None:
        """The job has ended. May come more than once. All earlier events must be stored when it returns."""
        ...
