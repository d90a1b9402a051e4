"""Read and write a job's folder: Spark's checkpoint, and the identity of the job beside it."""

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from strandline.checkpoint.clock_floors import CLOCK, clock_of, read_floors, with_floor
from strandline.errors import CheckpointMismatch, SetupError
from strandline.kernel.watermarks import FOREVER
from strandline.plan.compile import FEWEST
from strandline.plan.explain import explain_stages
from strandline.plan.nodes import Root, to_plain
from strandline.plan.refinement.inherited import as_stored
from strandline.plan.stages import Stages
from strandline.plan.upgrade.compare import changes
from strandline.ports.durable_files import sync_folder
from strandline.ports.ledger import Sealed
from strandline.ports.sources import ListedFile

_ABOUT: Final = "strandline.json"
EXTENT: Final = "extent.json"
"""The extent of bounded input."""
BACKFILL: Final = "backfill.json"
"""The plan of a backfill."""
_NOTES: Final = "notes.json"
_DIGEST: Final = "sha256"
_COMPACT: Final = ".compact"
NO_OFFSET: Final = "-"
"""Stands in Spark's offset log for a source without an offset."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a job: the pipeline's fingerprint, and the lineage in its ledger entries."""

    fingerprint: str
    lineage: str
    stages: str
    definition: Any = None
    key_groups: int = FEWEST
    """The number of key groups. It decides in which group a key is."""
    first: int = 0
    """The job's number of Spark's batch 0: a restored job continues the numbers of its savepoint."""
    moves: tuple[Mapping[str, Any], ...] = ()
    """The savepoints that it was restored from, oldest first, with batch, offsets and version."""
    starting: tuple[int, ...] = ()
    """Outputs that hold nothing from before the restore."""


@dataclass(frozen=True, slots=True)
class Noted:
    """The watermarks of the job and of each keyed step after a batch."""

    watermark: int
    steps: Mapping[int, int]
    epochs: tuple[int, ...] = ()
    """The driver's epoch in each sink."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A job's folder on a mounted file system."""

    folder: Path

    def claim(self, root: Root, stages: Stages) -> Identity:
        """Return the folder's identity, or write a new one; raise if the folder belongs to another pipeline."""
        about = self.folder / _ABOUT
        if about.exists():
            return self._verified(about, root, stages)
        self._make()
        # A run that was killed while it wrote its identity leaves only the draft.
        if any(found != _draft(about) for found in self.folder.iterdir()):
            raise CheckpointMismatch(
                f"the folder {self.folder} is not empty and holds no Strandline checkpoint",
                hint="choose an empty folder",
            )
        lineage, groups = uuid.uuid4().hex, stages.groups
        identity = Identity(stages.fingerprint, lineage, explain_stages(stages), to_plain(root), groups)
        self.adopt(identity)
        return identity

    def as_stored(self, root: Root) -> Root:
        """Return the pipeline as this folder holds it: with the defaults of the release that made it."""
        about = self.folder / _ABOUT
        return as_stored(root, read_identity(about).fingerprint) if about.exists() else root

    @property
    def key_groups(self) -> int | None:
        """Return the number of key groups of the stored state; None in a new folder."""
        about = self.folder / _ABOUT
        return read_identity(about).key_groups if about.exists() else None

    @property
    def identity(self) -> Identity:
        """Return the identity of the job."""
        about = self.folder / _ABOUT
        if not about.exists():
            raise CheckpointMismatch(f"{self.folder} holds no Strandline checkpoint", hint="name the folder of a job")
        return read_identity(about)

    def adopt(self, identity: Identity) -> None:
        """Write the identity. Called directly for a folder that a restore made."""
        facts = asdict(identity)
        write_durably(self.folder / _ABOUT, json.dumps({**facts, _DIGEST: _digest(facts)}, indent=2) + "\n")

    def _make(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise SetupError(
                f"cannot make the folder {self.folder}", detail=problem.strerror or "", hint="choose another folder"
            ) from None

    def _verified(self, about: Path, root: Root, stages: Stages) -> Identity:
        identity = read_identity(about)
        if identity.fingerprint != stages.fingerprint:
            found = changes(identity.definition, to_plain(root))
            raise CheckpointMismatch(
                f"the checkpoint in {self.folder} was made by another definition",
                detail="; ".join(map(str, found)) or "a detail that cannot be shown",
                hint="give this pipeline a folder of its own, go back to the definition that made it, or restore a "
                "savepoint with this one: `strandline plan` says what that would do",
            )
        return identity

    def offsets(self, batch: int, source: int = 0) -> dict[str, Any] | None:
        """Return the offset of a source at the end of a batch, from Spark's offset log; None if it has no entry."""
        entry = self._entry(batch)
        if not entry.exists():
            return None
        line = entry.read_text().splitlines()[2 + source]
        found: Any = None if line == NO_OFFSET else json.loads(line)
        return found if isinstance(found, dict) else None

    def positions(self, batch: int) -> tuple[str, ...]:
        """Return the offsets of all sources at the end of a batch, as Spark writes them. The heartbeat is last."""
        return tuple(self._entry(batch).read_text().splitlines()[2:])

    def clock(self, batch: int) -> int:
        """Return a batch's clock in milliseconds: never smaller than that of an earlier batch, the same if repeated."""
        return clock_of(self._stamp(batch), batch, read_floors(self.folder))

    def _stamp(self, batch: int) -> int:
        """Return the machine's time when Spark planned a batch. Spark stores it."""
        facts = json.loads(self._entry(batch).read_text().splitlines()[1])
        return int(facts["batchTimestampMs"])

    def keep_clock(self) -> None:
        """Keep the next batches from being earlier than any in Spark's log. Called at a start.

        The log may be of a version that kept no floors, and the clock may have been set back before.
        """
        numbers = self._numbers("offsets")
        if numbers and not read_floors(self.folder):
            reached = max(map(self._stamp, numbers))
            if reached > self._stamp(numbers[-1]):
                self._set_floor(numbers[-1] + 1, reached)

    def _raise_clock(self, batch: int, before: int | None) -> None:
        """Set a floor if the machine's clock was set back since the batch before."""
        reached = None if before is None else self.clock(before)
        if reached is not None and self.clock(batch) < reached:
            self._set_floor(batch, reached)

    def _set_floor(self, batch: int, at: int) -> None:
        write_durably(self.folder / CLOCK, with_floor(read_floors(self.folder), batch, at))

    def latest_offsets(self, source: int = 0) -> dict[str, Any]:
        """Return the offset of a source at the end of the newest batch."""
        newest = self.newest()
        return {} if newest is None else self.offsets(newest, source) or {}

    def newest(self) -> int | None:
        """Return the number of the newest planned batch."""
        return max(self._numbers("offsets"), default=None)

    def committed(self) -> list[int]:
        """Return the committed batches whose entries still exist, oldest first."""
        planned = set(self._numbers("offsets"))
        return [batch for batch in self._numbers("commits") if batch in planned]

    def in_spark(self, batch: int) -> int:
        """Return Spark's number of a batch of the job."""
        return batch - self.first

    def numbered(self, batch: int) -> int:
        """Return the job's number of a batch of Spark."""
        return batch + self.first

    @property
    def first(self) -> int:
        """Return the job's number of Spark's batch 0. Cached, because every read of Spark's logs needs it."""
        about = self.folder / _ABOUT
        try:
            now = about.stat()
        except FileNotFoundError:
            return 0
        return _cached_identity(about, now.st_mtime_ns, now.st_ino, now.st_size).first

    def _numbers(self, log: str) -> list[int]:
        """Return the batches in one of Spark's logs, in order."""
        found = (entry.name for entry in (self.spark / log).glob("[0-9]*"))
        return sorted(self.numbered(int(name)) for name in found if name.isdigit())

    def history(self, source: int, batches: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the clock and the offset of a source at the end of each of the last batches."""
        numbers = self._numbers("offsets")[-batches:]
        found = [(self.clock(number), self.offsets(number, source)) for number in numbers]
        return [(clock, offsets) for clock, offsets in found if offsets is not None]

    def seal(self, batch: int) -> Sealed:
        """Make a batch's range of offsets durable, which Spark does not do, and return its digest.

        The offset of a file source is only a number. The files are in the source's own log, which is synced too.
        """
        before = self._before(batch)
        self._raise_clock(batch, before)
        content = _synced(self._entry(batch))
        positions = content.decode().splitlines()[2:]
        earlier = [] if before is None else self._entry(before).read_text().splitlines()[2:]
        digest = hashlib.sha256(content)
        digest.update("\n".join(["", *earlier]).encode())
        for entry in self._lists(batch):
            digest.update(_synced(entry))
        starts = None if before is None else self._moved_to(before) or "\n".join(earlier)
        return Sealed(digest.hexdigest(), starts, "\n".join(positions))

    def _moved_to(self, batch: int) -> str | None:
        """Return the end of a savepoint as sinks recorded it, if this batch is the first after its restore."""
        moves = self.identity.moves if self.in_spark(batch) == 0 and (self.folder / _ABOUT).exists() else ()
        return str(moves[-1]["ends"]) if moves else None

    def to_copy(self, batch: int | None) -> list[Path]:
        """Return the small files that a job cannot do without; some of them may not exist.

        These are the identity, what was looked up at the start, the schemas of state, and a batch's range.
        """
        initial = [self.folder / name for name in (_ABOUT, EXTENT, BACKFILL, CLOCK)]
        if batch is None:
            return initial
        lasting = ("metadata", "state/*/_metadata/v2/[0-9]*", "state/*/_stateSchema/*/[0-9]*", "sources/*/0")
        found = [path for each in lasting for path in sorted(self.spark.glob(each))]
        before = self._before(batch)
        ranges = [self._entry(each) for each in (before, batch) if each is not None]
        return [*initial, *found, *ranges, *self._lists(batch)]

    def _lists(self, batch: int) -> list[Path]:
        """Return the entries for a batch in the logs that sources keep themselves."""
        before = self._before(batch)
        earlier = [] if before is None else self._entry(before).read_text().splitlines()[2:]
        positions = self._entry(batch).read_text().splitlines()[2:]
        ranges = enumerate(zip_longest(earlier, positions))
        return [
            entry
            for source, (start, end) in ranges
            for entry in self._source_log(source, _log_offset(start), _log_offset(end))
        ]

    def _before(self, batch: int) -> int | None:
        """Return the previous batch that has an entry: ids may have gaps."""
        if self._entry(batch - 1).exists():
            return batch - 1
        return max((number for number in self._numbers("offsets") if number < batch), default=None)

    def _source_log(self, source: int, after: int, until: int) -> list[Path]:
        """Return the entries in a source's own log between two offsets."""
        folder = self.spark / "sources" / str(source)
        places = [folder / f"{number}{kind}" for number in range(after + 1, until + 1) for kind in ("", ".compact")]
        return [place for place in places if place.exists()]

    def note(self, batch: int, watermark: int, steps: Mapping[int, int], epochs: tuple[int, ...] = ()) -> None:
        """Record the watermarks after a batch. A lost record only makes the next start slower."""
        kept = {number: each for number, each in self._notes().items() if number == batch - 1}
        kept[batch] = Noted(watermark, steps, epochs)
        facts = {number: asdict(each) for number, each in kept.items()}
        staged = _draft(self.folder / _NOTES)
        staged.write_text(json.dumps(facts) + "\n")
        staged.replace(self.folder / _NOTES)

    def noted(self, batch: int) -> "Noted | None":
        """Return the recorded watermarks of a batch, if it is one of the last two."""
        return self._notes().get(batch)

    @property
    def has_ended(self) -> bool:
        """Whether an earlier run closed every window, all sinks hold the result, and Spark committed it."""
        notes = self._notes()
        newest = max(notes, default=-1)
        return bool(notes) and notes[newest].watermark == FOREVER and self.is_committed(newest)

    def _notes(self) -> dict[int, "Noted"]:
        try:
            facts = json.loads((self.folder / _NOTES).read_text())
            return {
                int(number): Noted(
                    each["watermark"],
                    {int(step): mark for step, mark in each["steps"].items()},
                    tuple(each.get("epochs", ())),
                )
                for number, each in facts.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def listed(self, batch: int, source: int, lists: int | None = None) -> dict[int, tuple[ListedFile, ...]]:
        """Return the files in the last lists of a file source at the end of a batch, by list; None: in all lists."""
        newest = (self.offsets(batch, source) or {}).get("logOffset")
        if newest is None:
            return {}
        first = 0 if lists is None else max(newest + 1 - lists, 0)
        found: dict[int, list[ListedFile]] = {}
        for number in range(newest, first - 1, -1):
            entry = self._list(source, number)
            for line in reversed([] if entry is None else entry.read_text().splitlines()[1:]):
                file = json.loads(line)
                if file["batchId"] < first:
                    break
                found.setdefault(file["batchId"], []).append(ListedFile(file["path"], file["timestamp"]))
            if entry is not None and entry.suffix == _COMPACT:
                break  # a compacted list repeats all before it
        return {number: tuple(files) for number, files in found.items()}

    def listed_in(self, batch: int, source: int) -> tuple[ListedFile, ...]:
        """Return the files that a source gives to one batch."""
        before, newest = ((self.offsets(each, source) or {}).get("logOffset", -1) for each in (batch - 1, batch))
        lists = self.listed(batch, source, newest - before) if newest > before else {}
        return tuple(file for number, files in lists.items() if number > before for file in files)

    def _list(self, source: int, number: int) -> Path | None:
        folder = self.spark / "sources" / str(source)
        names = (folder / str(number), folder / f"{number}{_COMPACT}")
        return next((path for path in names if path.exists()), None)

    def refuse_changed(self, spark: Any) -> None:
        """Do nothing: sources check their own files."""

    def is_committed(self, batch: int) -> bool:
        return (self.spark / "commits" / str(self.in_spark(batch))).exists() or (batch == 0 and self.all_done.exists())

    @property
    def all_done(self) -> Path:
        """Return the marker file that exists once bounded input ran as one batch and all sinks hold it."""
        return self.folder / "extent.done"

    @property
    def drain(self) -> Path:
        """Return the file that requests a drain of a running job."""
        return self.folder / "drain"

    @property
    def due(self) -> Path:
        """Return the file that tells the heartbeat of a running job when a tick is due."""
        return self.folder / "due"

    @property
    def spark(self) -> Path:
        return self.folder / "spark"

    def _entry(self, batch: int) -> Path:
        return self.spark / "offsets" / str(self.in_spark(batch))


def read_identity(about: Path) -> Identity:
    """Read and verify the identity file of a job."""
    try:
        facts = json.loads(about.read_text())
        digest = facts.pop(_DIGEST, None)
        lists = {name: tuple(facts.get(name, ())) for name in ("moves", "starting")}
        identity = Identity(**{**facts, **lists})
    except (ValueError, TypeError, AttributeError) as problem:
        raise _unreadable(about, str(problem)) from None
    if digest not in (None, _digest(facts)):
        raise _unreadable(about, "its digest does not match")
    return identity


@lru_cache(maxsize=8)
def _cached_identity(about: Path, *version: int) -> Identity:  # noqa: ARG001 - another version is read anew
    return read_identity(about)


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _unreadable(about: Path, why: str) -> CheckpointMismatch:
    return CheckpointMismatch(f"cannot read {about}", detail=why, hint=f"strandline checkpoint check {about.parent}")


def write_durably(path: Path, text: str) -> None:
    """Write a file atomically and durably."""
    staged = _draft(path)
    try:
        with staged.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
        sync_folder(path.parent)
    except OSError as problem:
        staged.unlink(missing_ok=True)
        raise SetupError(f"cannot write {path}", detail=problem.strerror or "", hint="choose another folder") from None


def _synced(path: Path) -> bytes:
    """Make a file and its name durable, and return its bytes."""
    with path.open("rb") as file:
        content = file.read()
        os.fsync(file.fileno())
    sync_folder(path.parent)
    return content


def _log_offset(position: str | None) -> int:
    """Return the position of a file source in its log; -1 for other sources."""
    try:
        facts = json.loads(position or "")
    except ValueError:
        return -1
    return int(facts["logOffset"]) if isinstance(facts, dict) and "logOffset" in facts else -1


def _draft(path: Path) -> Path:
    return path.with_suffix(".tmp")
