"""Provide the demo's events: from the generator, or from a topic of a real broker that receives them."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from strandline.checkpoint.job_folder import Checkpoint
from strandline.cli.demo.recount import every_record
from strandline.connectors.kafka import Kafka
from strandline.connectors.scores import Scores
from strandline.spark.job import Job


class Log(Protocol):
    """The source of the demo's events; open while the job runs and until the recount is done."""

    @property
    def source(self) -> Scores | Kafka:
        """The pipeline's source."""
        ...

    def await_end(self, job: Job) -> None:
        """Wait until the job has read everything and closed every window."""
        ...

    def records(self, job: Job) -> Iterator[bytes]:
        """Yield every record of the log."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class GeneratedLog:
    """The generator, read by Spark as a source that ends by itself."""

    def __init__(self, source: Scores, home: Path) -> None:
        self._source, self._home = source, home

    @property
    def source(self) -> Scores:
        return self._source

    def await_end(self, job: Job) -> None:
        job.await_end()

    def records(self, job: Job) -> Iterator[bytes]:
        return every_record(self._source, self._origin(job))

    def _origin(self, job: Job) -> int:
        """Return the start time of the stream, from the job's offset log."""
        last = job.last
        offsets = last.offsets if last is not None else Checkpoint(self._home / "checkpoint").latest_offsets()
        return int(offsets["origin"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
