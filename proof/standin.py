"""Simulate Spark's part in a job: file source log, offsets, commits, and replayed batches.

All else is real: the checkpoint, the deliverer, the sinks and their ledgers. Like Spark, it writes a temporary file and
renames it, syncs nothing, and continues from the files it finds.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

import pyarrow as pa

from proof.events import block_of
from proof.stores import Asked
from strandline.checkpoint.examine import require_sound
from strandline.checkpoint.file_copies import COPIES, with_copies
from strandline.checkpoint.job_folder import Checkpoint, Identity
from strandline.errors import StateError
from strandline.execution.block_addresses import to_deliver
from strandline.kernel.blocks.block import pack
from strandline.plan.stages import Scan, Stages
from strandline.spark.delivery.deliver import Delivered, Deliverer, Retry

PER_BATCH: Final = 9
_ATTEMPTS: Final = 40


class _Bounded(threading.Event):
    """Retry policy with short, bounded waits."""

    def __init__(self) -> None:
        super().__init__()
        self._left = _ATTEMPTS

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        self._left -= 1
        time.sleep(0.005)
        return self._left < 0


@dataclass(frozen=True, slots=True)
class _Frame:
    """Stand-in for Spark's DataFrame, gathered in one action."""

    events: Sequence[int]
    outputs: int
    clock: int

    def toArrow(self) -> Any:  # noqa: N802 - Spark's name
        block = pack(block_of(self.events, self.outputs, self.clock))
        return pa.table({"kg": pa.array([to_deliver(0)], pa.int64()), "block": pa.array([block], pa.binary())})


@dataclass(frozen=True, slots=True)
class _Events:
    name: str = "events"
    partitions: tuple[str, ...] = ("0",)
    types: dict[str, str] = field(default_factory=dict)
    decoder: None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job's folder, sinks and ledger name. It may be started repeatedly."""

    home: Path
    outputs: tuple[Asked, ...]
    lineage: str = "job"
    per_batch: int = PER_BATCH
    first: int = 0
    """Number of its first event."""
    kept: bool = False
    """Keep copies of small files and check the folder at start, as a real job does."""

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.home)

    def run(
        self, events: int, before: Callable[[int], None] = lambda _: None, between: Callable[[], None] = lambda: None
    ) -> list[Delivered]:
        """Run until the given number of source events is delivered.

        `before` is called with each planned batch before it runs; `between` while no batch runs.
        """
        self._make()
        ranges = self._with_copies() if self.kept else self.checkpoint
        opened = [each.sink.open(each.deliver(number)) for number, each in enumerate(self.outputs)]
        done: list[Delivered] = []
        try:
            stages = Stages(
                (Scan(0, _Events(), (), (), 0),), (),
                tuple(each.deliver(number) for number, each in enumerate(self.outputs)), "", 1,
            )  # fmt: skip
            session: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
            retry = Retry(stopping=_Bounded(), shortest=0)
            deliverer = Deliverer(
                session, stages, tuple(opened), ranges, Identity("", self.lineage, ""), done.append, retry
            )
            between()
            for batch in self._batches(events):
                before(batch)
                frame: Any = _Frame(self.events_of(batch), len(self.outputs), self.checkpoint.clock(batch))
                deliverer(frame, batch)
                self._write(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
                between()
        finally:
            for each in opened:
                each.close()
        return done

    def _batches(self, events: int) -> Iterable[int]:
        newest = self.checkpoint.newest()
        if newest is not None and not self.checkpoint.is_committed(newest):
            yield newest
        while (planned := self._plan(events)) is not None:
            yield planned

    def _plan(self, events: int) -> int | None:
        """Plan the next batch: list new source files; the batch reads that list."""
        newest, known = self.checkpoint.newest(), self.listed()
        seen = max((event for ids in known.values() for event in ids), default=self.first - 1) + 1
        if seen < self.first + events:
            number = max(known, default=-1) + 1
            ids = range(seen, min(seen + self.per_batch, self.first + events))
            lines = [json.dumps({"path": f"event-{each}", "timestamp": each, "batchId": number}) for each in ids]
            self._write(f"sources/0/{number}", "\n".join(["v1", *lines]))
        end = max(self.listed(), default=-1)
        if end < 0 or (newest is not None and self._ends(newest) >= end):
            return None
        batch = 0 if newest is None else newest + 1
        facts = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000})
        self._write(f"offsets/{batch}", f'v1\n{facts}\n{{"logOffset":{end}}}')
        return batch

    def skip_id(self) -> None:
        """Skip a batch id, as an offline change of the checkpoint does."""
        newest = self.checkpoint.newest()
        assert newest is not None
        spark = self.checkpoint.spark
        for kind in ("offsets", "commits"):
            self._write(f"{kind}/{newest + 1}", (spark / kind / str(newest)).read_text())

    def listed(self) -> dict[int, list[int]]:
        """Return the events of each source list by number."""
        folder = self.checkpoint.spark / "sources" / "0"
        found = {}
        for path in folder.glob("[0-9]*"):
            lines = path.read_text().splitlines()[1:]
            found[int(path.name)] = [json.loads(line)["timestamp"] for line in lines]
        return found

    def events_of(self, batch: int) -> list[int]:
        """Return the events of a batch by offsets and lists; raise if one is missing."""
        start = max((self._ends(each) for each in self.planned() if each < batch), default=-1)
        lists = self.listed()
        wanted = range(start + 1, self._ends(batch) + 1)
        missing = [number for number in wanted if not lists.get(number)]
        if missing:
            raise StateError(f"the list {missing[0]} of the source is gone, and batch {batch} was to read it")
        return [event for number in wanted for event in lists[number]]

    def planned(self) -> list[int]:
        """Return the batches with an offset entry."""
        return sorted(int(path.name) for path in (self.checkpoint.spark / "offsets").glob("[0-9]*"))

    def _ends(self, batch: int) -> int:
        return int((self.checkpoint.offsets(batch) or {"logOffset": -1})["logOffset"])

    def _make(self) -> None:
        for name in ("offsets", "commits", "sources/0"):
            (self.checkpoint.spark / name).mkdir(parents=True, exist_ok=True)

    def _with_copies(self) -> Checkpoint:
        """Write identity and Spark's id at the first start; check the folder at later ones."""
        if self.checkpoint.newest() is None and not (self.home / COPIES).exists():
            self.checkpoint.adopt(Identity("", self.lineage, ""))
            self._write("metadata", json.dumps({"id": str(uuid5(NAMESPACE_OID, self.lineage))}))
        require_sound(self.home)
        return with_copies(self.checkpoint, self.lineage)

    def _write(self, name: str, text: str) -> None:
        path = self.checkpoint.spark / name
        draft = path.with_name(f".{path.name}.tmp")
        draft.write_text(text)
        draft.replace(path)
