"""Inject faults into forked processes: kills at each point, a paused driver, a restored copy, a full disk."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from proof.oracle import Reader, Verdict, judged
from proof.zygote import FENCED, REFUSED, Life, Zygote
from strandline.plan.endpoints import Delivery

SCHEDULE: Final = (
    "C9:1", "C10:1", "marked:1", "C6:2", "C10:2", "C9:5", "C7:2", "C11:1", "C9:3", "C12:1", "C10:6", "marked:2",
    "C11:2", "C9:6", "C10:3",
)  # fmt: skip
"""Three tables per job, one per delivery: a sink's point is passed three times per batch."""
GROWS: Final = 16
"""Events per life, in batches of seven or another size."""
SIZES: Final = (7, 9)


@dataclass(frozen=True, slots=True)
class Survived:
    """Result of a repeatedly killed job."""

    kills: int
    verdicts: Mapping[Delivery, Verdict]
    faults: tuple[str, ...]
    looks: int = 0


def killed(zygote: Zygote, store: Mapping[str, str], folder: Path, schedule: Sequence[str | float]) -> Survived:
    """Run a job with one table per delivery, kill it at points or after seconds, then let it finish."""
    life = Life(str(folder / "job"), store, 0)
    known: dict[int, list[int]] = {}
    readers = [Reader(each, lambda: known) for each in life.job.outputs]
    kills, events = 0, 0
    faults: list[str] = []
    for number, said in enumerate(schedule):
        events += GROWS
        ends = {"crash": said} if isinstance(said, str) else {"after": said}
        ended = zygote.live(_with(life, events=events, per_batch=SIZES[number % 2], **ends))
        kills += ended.killed
        if not ended.killed and ended.code:
            faults.append(f"{said}: it ended with {ended.code}")
        known |= batches_of(life)
        faults += [fault for reader in readers for fault in reader.look()]
    ended = zygote.live(_with(life, events=events))
    if ended.code:
        faults.append(f"the last life ended with {ended.code}")
    batches = batches_of(life)
    verdicts = {each.delivery: judged(each, range(events), batches) for each in life.job.outputs}
    faults += [f"{delivery}: {fault}" for delivery, each in verdicts.items() for fault in each.faults]
    return Survived(kills, verdicts, tuple(dict.fromkeys(faults)), sum(reader.looks for reader in readers))


def asleep(zygote: Zygote, store: Mapping[str, str], folder: Path, rounds: int) -> Survived:
    """Pause a driver before its sink has the batch, let another take over and finish, then resume the first."""
    life = Life(str(folder / "job"), store, 0, deliveries=(Delivery.EXACTLY_ONCE,))
    faults: list[str] = []
    events = 0
    for number in range(rounds):
        events += GROWS
        sleeper = zygote.live(_with(life, events=events, crash="C7:1", stops=True))
        if not sleeper.asleep:
            faults.append(f"round {number}: it ended with {sleeper.code} before it slept")
            continue
        other = zygote.live(_with(life, events=events, per_batch=SIZES[1]))
        woken = zygote.wake(sleeper)
        if (other.code, woken.code) != (0, FENCED):
            faults.append(f"round {number}: the new driver ended with {other.code}, the old one with {woken.code}")
    verdicts = {each.delivery: judged(each, range(events), batches_of(life)) for each in life.job.outputs}
    faults += [fault for each in verdicts.values() for fault in each.faults]
    return Survived(0, verdicts, tuple(faults))


def restored(zygote: Zygote, store: Mapping[str, str], folder: Path, rounds: int) -> Survived:
    """Restart from a folder copy older than the sink: it must be refused, and nothing skipped."""
    life = Life(str(folder / "job"), store, 0, deliveries=(Delivery.EXACTLY_ONCE,))
    home, old, new = Path(life.home), folder / "old", folder / "new"
    faults: list[str] = []
    events, kills = 0, 0
    for number in range(rounds):
        events += GROWS
        zygote.live(_with(life, events=events))
        shutil.copytree(home, old)
        events += GROWS
        kills += zygote.live(_with(life, events=events, crash=f"C10:{1 + number % 2}")).killed
        home.rename(new)
        old.rename(home)
        code = zygote.live(_with(life, events=events, per_batch=SIZES[0])).code
        if code != REFUSED:
            faults.append(f"round {number}: from an old copy it ended with {code}")
        shutil.rmtree(home)
        new.rename(home)
        code = zygote.live(_with(life, events=events)).code
        if code:
            faults.append(f"round {number}: from its own folder it ended with {code}")
    verdicts = {each.delivery: judged(each, range(events), batches_of(life)) for each in life.job.outputs}
    faults += [fault for each in verdicts.values() for fault in each.faults]
    return Survived(kills, verdicts, tuple(faults))


def out_of_room(zygote: Zygote, store: Mapping[str, str], folder: Path, limits: Sequence[int]) -> Survived:
    """Limit file growth at different points, then lift the limit."""
    life = Life(str(folder / "job"), store, 0, deliveries=(Delivery.EXACTLY_ONCE,))
    faults: list[str] = []
    events, refused = 0, 0
    for limit in limits:
        events += GROWS
        refused += zygote.live(_with(life, events=events, file_limit=limit)).code != 0
        ended = zygote.live(_with(life, events=events))
        if ended.code:
            faults.append(f"with room again, after {limit} bytes, it ended with {ended.code}")
    if not refused:
        faults.append("there was always room")
    verdicts = {each.delivery: judged(each, range(events), batches_of(life)) for each in life.job.outputs}
    faults += [fault for each in verdicts.values() for fault in each.faults]
    return Survived(0, verdicts, tuple(faults))


def drawn(seed: int, kills: int) -> list[str]:
    """Draw points of a batch, each at its first or second pass per table, from a seed."""
    draw = Random(seed)
    often = {"marked": 2, "C9": 2 * len(Delivery), "C10": 2 * len(Delivery)}
    points = [*("C6", "C7", "C11", "C12"), *(point for point in often for _ in range(3))]
    return [f"{point}:{draw.randint(1, often.get(point, 2))}" for point in draw.choices(points, k=kills)]


def at_random(seed: int, kills: int, longest: float = 0.4) -> list[float]:
    """Draw moments after the start of a process."""
    draw = Random(seed)
    return [round(draw.uniform(0.02, longest), 3) for _ in range(kills)]


def batches_of(life: Life) -> dict[int, list[int]]:
    job = life.job
    return {batch: job.events_of(batch) for batch in job.planned()}


def _with(life: Life, **changed: object) -> Life:
    return replace(life, **changed)  # type: ignore[arg-type]


def spec(kind: str, folder: Path) -> dict[str, str]:
    """Describe an embedded store in a folder."""
    return {"kind": kind, "path": str(folder)}
