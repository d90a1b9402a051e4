"""Look up the extent of bounded input once, and store it durably before reading.

A run that is killed and started again reads the same records. So a sink can recognise a batch that it holds.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from strandline.checkpoint.job_folder import EXTENT, Checkpoint, Noted, write_durably
from strandline.errors import CheckpointMismatch, InvalidStep
from strandline.kernel.watermarks import NEVER
from strandline.plan.stages import Stages
from strandline.ports.ledger import Sealed
from strandline.ports.sources import BoundedSource, ListedFile, LogSource
from strandline.spark.sources.log_watch import LogWatch


class Way(StrEnum):
    """How bounded input is run: as one batch, or in arrival order."""

    AT_ONCE = "at_once"
    BY_ARRIVAL = "by_arrival"


@dataclass(frozen=True, slots=True)
class Extent:
    """What each source holds, by the number of its scan, and the clock of the run that looked it up."""

    way: Way
    clock: int
    sources: tuple[Any, ...]


def is_bounded(stages: Stages) -> bool:
    """Whether the input is bounded; raise if only some sources are."""
    ending = [scan.source.name for scan in stages.scans if isinstance(scan.source, BoundedSource) and scan.source.ends]
    others = [scan.source.name for scan in stages.scans if scan.source.name not in ending]
    if ending and others:
        raise InvalidStep(
            f"{ending[0]} ends, and {others[0]} does not",
            hint="let all sources end, or none; run(backfill=…) reads history first and goes on with a topic",
        )
    return bool(ending)


def stored_extent(home: Checkpoint, stages: Stages, way: Way, spark: SparkSession, *, meant: bool) -> Extent:
    """Return the extent in the job's folder, or look it up. `meant` is whether the user chose the way."""
    path = home.folder / EXTENT
    if path.exists():
        known = _read(path)
        if meant and known.way is not way:
            raise CheckpointMismatch(
                f"the run in {home.folder} was started the other way, {known.way}",
                hint="run it as it was started, or choose another folder",
            )
        return known
    sources = tuple(scan.source.extent(spark) for scan in stages.scans if isinstance(scan.source, BoundedSource))
    found = Extent(way, time.time_ns() // 1_000_000, sources)
    write_durably(path, json.dumps({"way": way, "clock": found.clock, "sources": sources}) + "\n")
    return found


def ends_of(extent: Extent, stages: Stages) -> list[dict[str, dict[str, int]]]:
    """Return where the slice of each topic ends, by topic and partition."""
    topics = [
        part for scan, part in zip(stages.scans, extent.sources, strict=True) if isinstance(scan.source, LogSource)
    ]
    return [
        {topic: {number: end for number, (_, end) in each.items()} for topic, each in part.items()} for part in topics
    ]


def limited_to(stages: Stages, extent: Extent) -> Stages:
    """Return the stages with sources limited to this extent."""
    scans = [
        replace(scan, source=scan.source.within(part)) if isinstance(scan.source, BoundedSource) else scan
        for scan, part in zip(stages.scans, extent.sources, strict=True)
    ]
    return replace(stages, scans=tuple(scans))


def _read(path: Path) -> Extent:
    try:
        facts = json.loads(path.read_text())
        return Extent(Way(facts["way"]), int(facts["clock"]), tuple(facts["sources"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise CheckpointMismatch(
            f"cannot read {path}", detail=str(problem), hint=f"strandline checkpoint check {path.parent}"
        ) from None


@dataclass(frozen=True, slots=True)
class SingleRange:
    """The range of a job that runs as one batch, in place of a checkpoint (`Ranges` in deliver.py)."""

    home: Checkpoint
    extent: Extent
    stages: Stages
    logs: LogWatch | None = None

    def numbered(self, batch: int) -> int:
        return batch

    def seal(self, batch: int) -> Sealed:  # noqa: ARG002 - there is one
        content = (self.home.folder / EXTENT).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        return Sealed(digest, None, f"all of {digest}")

    def clock(self, batch: int) -> int:  # noqa: ARG002
        return self.extent.clock

    def offsets(self, batch: int, source: int = 0) -> dict[str, Any] | None:  # noqa: ARG002
        return None

    def listed(self, batch: int, source: int, lists: int | None = None) -> dict[int, tuple[ListedFile, ...]]:  # noqa: ARG002
        return {}

    def listed_in(self, batch: int, source: int) -> tuple[ListedFile, ...]:  # noqa: ARG002
        """Return nothing: each row has the name of its file, because there may be very many files."""
        return ()

    def noted(self, batch: int) -> Noted:  # noqa: ARG002
        """Return no watermark: before the only batch nothing can be late."""
        return Noted(NEVER, {step.number: NEVER for step in self.stages.steps})

    def note(self, batch: int, watermark: int, steps: Mapping[int, int], epochs: tuple[int, ...] = ()) -> None:
        self.home.note(batch, watermark, steps, epochs)
        write_durably(self.home.all_done, "")

    def refuse_changed(self, spark: SparkSession) -> None:
        if self.logs is not None:
            self.logs.check()
        for scan, part in zip(self.stages.scans, self.extent.sources, strict=True):
            if isinstance(scan.source, BoundedSource):
                scan.source.refuse_changed(part, spark)
