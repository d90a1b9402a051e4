"""Write the numbers of every batch as JSON lines for log collectors, with rotation of large files."""

import json
from pathlib import Path
from typing import Final

from strandline.observe.metrics.encoding import to_plain
from strandline.observe.metrics.history import JobState
from strandline.observe.metrics.metrics import BatchMetrics

LARGEST: Final = 64 * 2**20


class Lines:
    """A file with one line per batch."""

    def __init__(self, path: Path, largest: int = LARGEST) -> None:
        self._path, self._largest = path, largest
        self._file = path.open("a", encoding="utf-8")

    def export(self, job: str, metrics: BatchMetrics, state: JobState) -> None:
        line = {"job": job, "state": state.value, **to_plain(metrics)}
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        self._file.flush()
        if self._file.tell() > self._largest:
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        self._file.close()
