"""The demo's log: the generator itself, or a topic of a real broker that the generator's records are sent to."""

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
    """Where the demo's events come from; open while the job runs and until they are counted again."""

    @property
    def source(self) -> Scores | Kafka:
        """What the pipeline reads."""
        ...

    def await_end(self, job: Job) -> None:
        """Waits until the job has read everything and closed every window."""
        ...

    def records(self, job: Job) -> Iterator[bytes]:
        """Every record there ever was."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Generated:
    """The generator, read by Spark as a source of its own; it ends by itself."""

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
        """When the stream started, as its offset log tells."""
        last = job.last
        offsets = last.offsets if last is not None else Checkpoint(self._home / "checkpoint").latest_offsets()
        return int(offsets["origin"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
