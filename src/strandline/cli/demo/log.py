"""Define the demo's log of events: the generator itself, or a Kafka topic that the generator's records are sent to."""

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
    """The source of the demo's events. It stays open until the batch job has counted them again."""

    @property
    def source(self) -> Scores | Kafka:
        """The source that the pipeline reads."""
        ...

    def await_end(self, job: Job) -> None:
        """Wait until the job has read everything and closed every window."""
        ...

    def records(self, job: Job) -> Iterator[bytes]:
        """Return every record of the stream."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class GeneratedLog:
    """The generator, which Spark reads directly. It is bounded."""

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
        """Return when the stream started, from Spark's offset log."""
        last = job.last
        offsets = last.offsets if last is not None else Checkpoint(self._home / "checkpoint").latest_offsets()
        return int(offsets["origin"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
