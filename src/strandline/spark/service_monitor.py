"""Watch the brokers of a job's sources, in threads beside the batches.

Spark waits for a broker without reporting it. These threads ask every second and report to the job's waits. They also
learn where the partitions of topics end, from which the lag is computed.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from strandline.errors import SourceUnavailable
from strandline.plan.stages import Stages
from strandline.ports.sources import EndReader, KnownEnds, LogSource
from strandline.ports.waiting import Waits, wall_clock

EVERY_SECONDS: Final = 1.0
FRESH_SECONDS: Final = 15.0
"""How long end offsets are used for the lag after the broker has told them."""

_log: Final = logging.getLogger("strandline")

FAILED_TASK: Final = "a failed task that Spark runs again"

TaskFailures = Callable[[], "tuple[int, str] | None"]
"""Returns how many tasks of the current batch have failed, and the error of one; None if none has."""


_AGO_SECONDS: Final = (30 * 86_400, 7 * 86_400, 86_400, 6 * 3_600, 3_600, 600, 60, 10)
"""How long ago the ends are asked for once, so that the lag is known in seconds from the first batch on."""


@dataclass(frozen=True, slots=True)
class _Asked:
    at: float
    ends: Mapping[str, int]


class ServiceMonitor:
    """The threads that watch the services of one job."""

    def __init__(self, stages: Stages, waits: Waits, *, every: float = EVERY_SECONDS) -> None:
        self._waits, self._every = waits, every
        self._asked: dict[int, _Asked] = {}
        self._earlier: dict[int, Mapping[str, tuple[tuple[int, int], ...]]] = {}
        self._stopping = threading.Event()
        for scan in stages.scans:
            reader = scan.source.end_reader() if isinstance(scan.source, LogSource) else None
            if reader is not None:
                self._start(f"ends of {scan.source.name}", self._source_check(scan.number, scan.source.name, reader))

    def watch(self, check: Callable[[], None]) -> None:
        """Call a function every second until the job has ended."""
        self._start("start", check)

    def ends(self, scan: int) -> KnownEnds:
        """Return where the partitions of a source end; nothing if its service has not told it lately."""
        asked = self._asked.get(scan)
        if asked is None or time.monotonic() - asked.at > FRESH_SECONDS:
            return KnownEnds()
        return KnownEnds(asked.ends, self._earlier.get(scan, {}))

    def stop(self) -> None:
        """End all threads, without waiting for them."""
        self._stopping.set()

    def _source_check(self, scan: int, name: str, reader: EndReader) -> Callable[[], None]:
        def check() -> None:
            try:
                if scan not in self._earlier:
                    self._earlier[scan] = _earlier(reader)
                self._asked[scan] = _Asked(time.monotonic(), reader.ends())
            except SourceUnavailable as problem:
                self._waits.failed(name, str(problem), next_in=self._every)
            else:
                self._waits.answered(name)

        return check

    def _start(self, what: str, check: Callable[[], None]) -> None:
        threading.Thread(target=self._repeat, args=[what, check], name=f"strandline-{what}", daemon=True).start()

    def _repeat(self, what: str, check: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                check()
            except Exception as problem:  # noqa: BLE001 - what a monitor cannot find out must not end a job
                _log.debug("%s cannot be watched: %s: %s", what, type(problem).__name__, problem)
            self._stopping.wait(self._every)


def _earlier(reader: EndReader) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return where each partition ended at some earlier times, oldest first."""
    now = wall_clock()
    found: dict[str, list[tuple[int, int]]] = {}
    for ago in _AGO_SECONDS:
        at = now - ago * 1000
        for partition, end in reader.ends_at(at).items():
            found.setdefault(partition, []).append((at, end))
    return {partition: tuple(each) for partition, each in found.items()}
