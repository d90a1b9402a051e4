"""Enumerate all crashes of a delivery in one process: the state each leaves, the restart, and the result.

A crash is an uncaught exception at a named point, optionally with a power cut. Further faults can repeat or lose a
batch: a second driver, a lost answer, an unreachable sink, a checkpoint or sink restored from a copy, ids with gaps,
another job.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from proof.oracle import Reader, Verdict, judged
from proof.power import Power
from proof.proxy import PATIENCE, Proxy, before_kafka
from proof.standin import PER_BATCH, Job
from proof.stores import EMBEDDED, Asked, Store
from strandline.connectors.kafka.clients import Writer
from strandline.errors import Fenced, SinkUnavailable, StateError, StrandlineError
from strandline.plan.endpoints import Delivery
from strandline.ports import crash_points

POINTS: Final = {
    Delivery.EXACTLY_ONCE: ("C6", "C7", "C9", "C10", "C11", "C12"),
    Delivery.AT_LEAST_ONCE: ("C6", "C7", "C9", "C10", "C11", "C12"),
    Delivery.AT_MOST_ONCE: ("C6", "C7", "marked", "C9", "C10", "C11", "C12"),
}
BATCHES: Final = 3
EVENTS: Final = BATCHES * PER_BATCH
GROWN: Final = EVENTS + 10
"""At restart the source has more events, and batches have another size."""
_OTHER_SIZE: Final = 13


class Died(BaseException):
    """Simulated process death; not caught by `except Exception`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of recovering from a state."""

    name: str
    faults: tuple[str, ...]
    lost: int = 0
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """A fault: its description and the function that causes it in a folder."""

    delivery: Delivery
    name: str
    play: Callable[[Path, Store], Outcome]


@contextmanager
def at(point: str, act: Callable[[], object], turn: int = 1) -> Iterator[None]:
    """Run an action at the n-th pass of a crash point, instead of a kill."""
    crash_points._passed.clear()
    with patch.dict(os.environ, {crash_points.VARIABLE: f"{point}:{turn}"}), patch("os.killpg", lambda *_: act()):
        yield


class Bomb:
    """Action at a point of exactly one batch."""

    def __init__(self, batch: int, point: str, act: Callable[[], object]) -> None:
        self._batch, self._point, self._act = batch, point, act
        self.fired = False

    def before(self, batch: int) -> None:
        crash_points._passed.clear()
        os.environ[crash_points.VARIABLE] = f"{self._point}:1" if batch == self._batch and not self.fired else "none"

    @contextmanager
    def planted(self) -> Iterator[None]:
        with at("none", self._fire):
            yield

    def _fire(self) -> None:
        self.fired = True
        self._act()


class Stage:
    """A job in its own folder, a reader of its table, and simulated power."""

    def __init__(self, folder: Path, *outputs: Asked) -> None:
        self.folder = folder
        self.job = Job(folder / "job", outputs)
        self.readers = [Reader(each, self.batches) for each in outputs]
        self.power = Power([self.job.home, *(root for each in outputs for root in each.store.roots)])
        self.faults: list[str] = []

    def batches(self) -> dict[int, list[int]]:
        return {batch: self.job.events_of(batch) for batch in self.job.planned()}

    def look(self) -> None:
        for reader in self.readers:
            self.faults += reader.look()

    def live(self, events: int, bomb: Bomb | None = None, *, per_batch: int = PER_BATCH) -> None:
        """Run one life to its end or crash. Between batches all files become durable."""
        mine = bomb or Bomb(-1, "none", lambda: None)
        job = replace(self.job, per_batch=per_batch)
        with self.power.watched(), mine.planted(), suppress(Died):
            job.run(events, mine.before, self.power.flush)
        if bomb is not None and not bomb.fired:
            self.faults.append("the job never came to the point at which it was to die")

    @contextmanager
    def going(self) -> Iterator[None]:
        """Run a life that must not be refused."""
        try:
            yield
        except StrandlineError as problem:
            self.faults.append(f"refused to go on: {problem}")
        except (OSError, ValueError) as problem:
            self.faults.append(f"cannot be read: {type(problem).__name__}: {problem}")

    def goes_on(self, events: int = GROWN) -> None:
        """Run the next life, which must finish."""
        with self.going():
            self.look()
            self.live(events, per_batch=_OTHER_SIZE)
            self.look()

    def verdicts(self, events: int = GROWN) -> list[Verdict]:
        found: list[Verdict] = []
        with self.going():
            found += [judged(each, range(events), self.batches()) for each in self.job.outputs]
        return found

    def outcome(self, name: str, events: int = GROWN) -> Outcome:
        found = self.verdicts(events)
        faults = dict.fromkeys([*self.faults, *(fault for each in found for fault in each.faults)])
        return Outcome(name, tuple(faults), sum(each.lost for each in found), sum(each.repeated for each in found))


def _dies(stage: Stage) -> Callable[[], None]:
    def act() -> None:
        with stage.going():
            stage.look()
        raise Died

    return act


def crashed(delivery: Delivery, point: str, batch: int, *, cut: bool = False) -> State:
    """Crash at a point of a batch, with or without a power cut."""
    name = f"{delivery} {point} batch {batch}{' power cut' if cut else ''}"

    def play(folder: Path, store: Store) -> Outcome:
        stage = Stage(folder, Asked(store, delivery))
        with stage.going():
            stage.live(EVENTS, Bomb(batch, point, _dies(stage)))
        if cut:
            stage.power.cut()
        stage.goes_on()
        return stage.outcome(name)

    return State(delivery, name, play)


def two_drivers(delivery: Delivery, point: str) -> State:
    """Pause the driver during a batch, let another take over and finish, then resume the first."""
    name = f"{delivery} two drivers {point}"

    def play(folder: Path, store: Store) -> Outcome:
        stage = Stage(folder, Asked(store, delivery))
        bomb = Bomb(1, point, lambda: stage.job.run(EVENTS))
        try:
            stage.live(EVENTS, bomb)
            stage.faults.append("the old driver was not fenced")
        except Fenced:
            pass
        except StrandlineError as problem:
            stage.faults.append(f"the old driver was not fenced: {problem}")
        stage.goes_on()
        return stage.outcome(name)

    return State(delivery, name, play)


def answer_lost(delivery: Delivery, point: str) -> State:
    """Lose the sink's answer, before its commit (C9) or after it (C10), and retry the batch."""
    name = f"{delivery} no answer {point}"

    def gone() -> None:
        raise SinkUnavailable("the sink does not answer")

    def play(folder: Path, store: Store) -> Outcome:
        stage = Stage(folder, Asked(store, delivery))
        with stage.going():
            stage.live(EVENTS, Bomb(1, point, gone))
        stage.goes_on()
        return stage.outcome(name)

    return State(delivery, name, play)


def old_checkpoint(delivery: Delivery) -> State:
    """Restore a checkpoint copy older than the sink: it must be refused, never silently skipped."""
    name = f"{delivery} old checkpoint"

    def play(folder: Path, store: Store) -> Outcome:
        stage = Stage(folder, Asked(store, delivery))
        stage.live(2 * PER_BATCH)
        shutil.copytree(stage.job.home, folder / "copy")
        stage.live(EVENTS)
        known = stage.batches()
        shutil.rmtree(stage.job.home)
        (folder / "copy").rename(stage.job.home)
        refused = _refused(stage)
        verdict = judged(
            stage.job.outputs[0], range(EVENTS if refused else GROWN), known if refused else stage.batches()
        )
        faults = verdict.faults
        if delivery is Delivery.AT_LEAST_ONCE:  # it looks at no ledger: batches of both pasts stand side by side
            faults = tuple(fault for fault in faults if fault.startswith("lost"))
        return Outcome(name, faults, verdict.lost, verdict.repeated)

    return State(delivery, name, play)


def old_sink(delivery: Delivery) -> State:
    """Restore a sink copy older than the checkpoint: it must be refused, since batches are missing."""
    name = f"{delivery} old sink"

    def play(folder: Path, store: Store) -> Outcome:
        place: Path = store.path  # type: ignore[attr-defined]
        stage = Stage(folder, Asked(store, delivery))
        stage.live(2 * PER_BATCH)
        shutil.copytree(place, folder / "copy")
        stage.live(3 * PER_BATCH)
        shutil.rmtree(place)
        (folder / "copy").rename(place)
        if not _refused(stage):
            stage.faults.append("a gap between sink and checkpoint was passed over")
        return stage.outcome(name, 2 * PER_BATCH)

    return State(delivery, name, play)


def _refused(stage: Stage) -> bool:
    try:
        stage.live(GROWN, per_batch=_OTHER_SIZE)
    except StateError:
        return True
    return False


def another_job(delivery: Delivery) -> State:
    """Let another job write to the same table with the same batch ids."""
    name = f"{delivery} another job"

    def play(folder: Path, store: Store) -> Outcome:
        stage, other = Stage(folder, Asked(store, delivery)), Stage(folder / "other", Asked(store, delivery))
        other.job = replace(other.job, lineage="another", first=EVENTS)
        for each in (stage, other):
            with stage.going():
                each.live(EVENTS)
        batches = {batch: [*ids, *other.batches().get(batch, [])] for batch, ids in stage.batches().items()}
        verdict = judged(stage.job.outputs[0], range(2 * EVENTS), batches)
        return Outcome(name, (*stage.faults, *verdict.faults), verdict.lost, verdict.repeated)

    return State(delivery, name, play)


def gap(delivery: Delivery) -> State:
    """Skip a batch id without losing events."""
    name = f"{delivery} gap in ids"

    def play(folder: Path, store: Store) -> Outcome:
        stage = Stage(folder, Asked(store, delivery))
        stage.live(2 * PER_BATCH)
        stage.job.skip_id()
        stage.goes_on()
        return stage.outcome(name)

    return State(delivery, name, play)


def two_sinks(turn: int) -> State:
    """Crash between two sinks of one job: the first has the batch, the second must get it."""
    name = f"exactly_once two sinks C10:{turn}"

    def play(folder: Path, store: Store) -> Outcome:
        stage = Stage(folder, Asked(store), Asked(store, table="others"))
        with at("C10", _dies(stage), 2 + turn), stage.power.watched(), suppress(Died):
            stage.job.run(EVENTS)
        stage.goes_on()
        return stage.outcome(name)

    return State(Delivery.EXACTLY_ONCE, name, play)


def asked_twice() -> State:
    """Break the connection during a commit request, which is repeated and done. The first request arrives during the
    next transaction, and then the driver dies."""
    name = f"{Delivery.EXACTLY_ONCE} end asked for twice"

    def play(folder: Path, store: Store) -> Outcome:
        servers: str = store.servers  # type: ignore[attr-defined]
        with before_kafka(int(servers.rpartition(":")[2])) as proxy:
            through: Store = replace(store, servers=f"127.0.0.1:{proxy.port}")  # type: ignore[type-var]
            stage = Stage(folder, Asked(through))
            with stage.going(), _arriving_late(proxy, folder / "held") as before, suppress(Died):
                stage.job.run(EVENTS, before)
                stage.faults.append("no end of a transaction came late")
            stage.goes_on()
            return stage.outcome(name)

    return State(Delivery.EXACTLY_ONCE, name, play)


@contextmanager
def _arriving_late(proxy: Proxy, held: Path) -> Iterator[Callable[[int], None]]:
    """Hold back the end of batch 1 until one record of batch 2 is written."""
    begin, next_ = Writer._begin, threading.Event()

    def records_and(writer: Writer, records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for record in records:
            yield record
            if next_.is_set():
                writer._producer.flush(PATIENCE)
                proxy.release()
                raise Died

    def before(batch: int) -> None:
        if batch == 1:
            proxy.arm(held, cuts=True)
        elif batch == 2:
            next_.set()

    late: Any = lambda writer, records, refused: begin(writer, records_and(writer, records), refused)  # noqa: E731
    with patch.object(Writer, "_begin", late):
        yield before


def crashes(batches: Sequence[int], *, cuts: Sequence[bool] = (False, True)) -> list[State]:
    """Enumerate all crash points of all deliveries."""
    return [
        crashed(delivery, point, batch, cut=cut)
        for cut in cuts
        for batch in batches
        for delivery, points in POINTS.items()
        for point in points
    ]


def encounters(kind: str) -> list[State]:
    """Enumerate the other faults between a batch and such a sink."""
    # An open SQL transaction keeps the next driver out until it ends.
    asleep = ("C7",) if kind in ("sqlite", "duckdb", "postgres") else ("C7", "C9")
    copied = kind in EMBEDDED
    return [
        *((asked_twice(),) if kind == "kafka" else ()),
        *(two_drivers(delivery, point) for delivery in Delivery for point in asleep),
        *(answer_lost(delivery, point) for delivery in Delivery for point in ("C9", "C10")),
        *(old_checkpoint(delivery) for delivery in Delivery),
        *((old_sink(delivery) for delivery in (Delivery.EXACTLY_ONCE, Delivery.AT_MOST_ONCE)) if copied else ()),
        *(another_job(delivery) for delivery in Delivery),
        *(gap(delivery) for delivery in Delivery),
        *(two_sinks(turn) for turn in (1, 2)),
    ]
