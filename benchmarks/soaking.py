"""Run one long job in its own process and JVM with scheduled input, and sample it.

usage: python -m benchmarks.soaking ORDER.json      the file names the run; the result is written beside it
"""

import contextlib
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import latency, sessions
from benchmarks.contestant import rows_of
from benchmarks.feeds import Folder
from benchmarks.workloads import Contestant

if TYPE_CHECKING:
    from strandline.spark.delivery.deliver import Delivered

EVERY: Final = 5.0
"""Seconds between samples."""
AS_USUAL: Final = {"spark.sql.streaming.numRecentProgressUpdates": "100"}
"""Progress updates kept by Spark; keeping all, as other benchmarks do, would be a leak."""
FILES_EVERY: Final = 1.0
"""Seconds between files; a job keeps a list of files read."""
STAYS: Final = 300.0
"""Seconds a file stays in the folder, which Spark lists for each batch."""


@dataclass(slots=True)
class Eye:
    """Samples of a job, one line per five seconds, so that the sampler itself does not grow."""

    seen: list[dict[str, Any]] = field(default_factory=list)
    read: int = 0
    known: int = 0
    """Elements accepted by a window or emitted as late."""
    due: int = 0
    """Newest event in a pane."""
    waited: float = 0.0
    batches: int = 0

    def hear(self, delivered: "Delivered", now: float | None = None) -> None:
        """Record a batch."""
        moment = time.time() if now is None else now
        self.read += rows_of(delivered)
        self.known += sum(counts.contributed + counts.late for counts in delivered.counts.values())
        self.batches += 1
        panes = delivered.output.panes
        newest = 0 if panes is None or panes.is_empty() else max(panes["due"].to_list())
        if newest > self.due:
            self.due, self.waited = newest, max(self.waited, moment - newest / 1000)
        if not self.seen or moment >= self.seen[-1]["at"] + EVERY:
            steps = delivered.steps.values()
            self.seen.append({
                "at": moment, "rows": sum(step.rows for step in steps), "bytes": sum(step.size for step in steps),
                "read": self.read, "batches": self.batches, "waited": round(self.waited, 3),
            })  # fmt: skip
            self.waited = 0.0


def main(arguments: list[str]) -> None:
    path = Path(arguments[0])
    order = json.loads(path.read_text())
    home, eye = path.parent, Eye()
    folder = home / "events"
    folder.mkdir()
    spark = sessions.start(Contestant.OURS, home / "spark.log", Folder(str(folder)), also=AS_USUAL)
    job = latency.start(spark, folder, home / "checkpoint", eye.hear, "0 seconds")
    latency.prime(folder, lambda due: eye.due >= due)
    threading.Thread(target=keep_tidy, args=(folder,), daemon=True).start()
    began = time.time()
    latency.feed(home, folder, order["seconds"], order["rate"], FILES_EVERY)
    sent = events_of(order["seconds"], order["rate"])
    ended = time.time()
    while eye.read < sent and time.time() < ended + latency.PATIENCE:
        time.sleep(0.1)
    job.stop()
    told = {"began": began, "ended": ended, "sent": sent, "read": eye.read, "known": eye.known, "seen": eye.seen}
    (home / "run.json").write_text(json.dumps(told))
    spark.stop()


def keep_tidy(folder: Path) -> None:
    """Remove files that were read long ago, as an operator of a long job does."""
    while True:
        time.sleep(EVERY)
        tidy(folder, time.time())


def tidy(folder: Path, now: float) -> None:
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # one that is being written gets its name meanwhile
            if file.stat().st_mtime < now - STAYS:
                file.unlink()


def events_of(seconds: float, rate: int) -> int:
    """Return the total number of events."""
    first = latency.PRIMED * int(latency.RATE * latency.EVERY)
    return first + int(seconds / FILES_EVERY) * max(int(rate * FILES_EVERY), 1)


if __name__ == "__main__":
    main(sys.argv[1:])
