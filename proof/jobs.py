"""Run a real job on Spark as a killable process: the same events to each sink under each delivery.

    python -m proof.jobs '{"home": …, "stores": […], "semantics": […]}'

The first output has totals by key and window, late elements and dead letters; then each store and delivery has a table
with all events. The job appends a line to `said` per delivered batch.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import strandline as sl
from proof.bugs import BUGS
from proof.stores import Asked, store_of
from strandline.errors import Fenced, StateError, StrandlineError
from strandline.plan.endpoints import Delivery

if TYPE_CHECKING:
    from strandline.spark.delivery.deliver import Delivered

FENCED, REFUSED, FAILED = 3, 4, 6
COLUMNS: Final = "event long, key string, score long, at timestamp"
JAVA: Final = "spark.driver.extraJavaOptions"
FAST: Final = {
    # A JVM that lives for seconds needs no second compiler and fills little memory.
    JAVA: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn600m -XX:MetaspaceSize=256m -Xshare:auto",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
}


@dataclass(frozen=True, slots=True)
class Real:
    """A job in its own folder."""

    home: str
    stores: tuple[Mapping[str, str], ...]
    semantics: tuple[str, ...] = tuple(Delivery)
    finish: bool = False
    """Read the available data and end."""
    bug: str | None = None
    java: str = ""
    """Additional JVM options."""

    @property
    def folder(self) -> Path:
        return Path(self.home)

    @property
    def inbox(self) -> Path:
        return self.folder / "inbox"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def totals(self) -> Path:
        return self.folder / "totals.db"

    @property
    def said(self) -> Path:
        return self.folder / "said"

    @property
    def tables(self) -> tuple[Asked, ...]:
        """Return each store under each delivery."""
        deliveries = [Delivery(each) for each in self.semantics]
        return tuple(Asked(store_of(spec), each, each.value) for spec in self.stores for each in deliveries)


def panes_of(real: Real) -> tuple[sl.Elements, sl.Panes]:
    """Build the events and their totals."""
    source = sl.files(real.inbox, sl.json(COLUMNS), files_per_batch=1)
    events = sl.read(source).event_time("at", sl.bounded(seconds=10))
    spoken = sl.after_watermark(early=sl.repeatedly(sl.after_count(1)), late=sl.repeatedly(sl.after_count(1)))
    keyed = events.key_by("key").window(sl.tumbling(seconds=10)).trigger(spoken)
    totals = keyed.accumulate(sl.retracting).allow_lateness(seconds=5)
    return events, totals.aggregate(total=sl.sum("score"), plays=sl.count())


def pipeline(real: Real) -> sl.Pipeline:
    """Build one job with all outputs."""
    events, totals = panes_of(real)
    outputs = [events.write(each.sink, delivery=each.delivery) for each in real.tables]
    return sl.together(totals.write(sl.sqlite(real.totals, table="totals")), *outputs)


def main(words: list[str]) -> int:
    told = json.loads(words[0])
    real = Real(**{**told, "stores": tuple(told["stores"]), "semantics": tuple(told["semantics"])})
    if real.bug is not None:
        BUGS[real.bug].made().__enter__()

    def tell(batch: "Delivered") -> None:
        line = json.dumps({"batch": batch.batch, "at": time.time(), "pid": os.getpid(), "repeated": batch.repeated})
        with real.said.open("a") as said:
            said.write(line + "\n")

    settings = {**FAST, JAVA: f"{FAST[JAVA]} {real.java}".rstrip()}
    options = {"checkpoint": real.checkpoint, "listener": tell, "settings": settings, "available_now": real.finish}
    try:
        job = pipeline(real).run(**options, key_groups=2)
        job.await_end()
    except Fenced as problem:
        return _told(problem, FENCED)
    except StateError as problem:
        return _told(problem, REFUSED)
    except StrandlineError as problem:
        return _told(problem, FAILED)
    return 0


def _told(problem: StrandlineError, code: int) -> int:
    sys.stderr.write(f"{problem}: {problem.detail}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
