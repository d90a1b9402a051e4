"""Damage checkpoint files: a start must refuse, and repair must mend or decline, never produce a wrong state.

The damage is drawn from a seed. If repair declines, the folder is restored, so that the job can continue to the next
one.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Final

from proof.forked import GROWS, SIZES, batches_of
from proof.oracle import judged
from proof.zygote import REFUSED, Life, Zygote
from strandline.checkpoint.repair import repair
from strandline.plan.endpoints import Delivery

POINTS: Final = ("C6:1", "C7:1", "C9:1", "C10:1", "C11:1", "C12:1", "C7:2", "C10:2")


class Fate(StrEnum):
    """Result of a job with a torn checkpoint."""

    UNHURT = "went on"
    MENDED = "mended"
    SAID = "refused, and said why"


@dataclass(slots=True)
class Torn:
    """Number of injections by result, violations, and kinds of file that could not be repaired."""

    fates: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    kills: int = 0


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def missing(path: Path) -> None:
    path.unlink()


WAYS: Final[tuple[Callable[[Path], None], ...]] = (empty, half, missing)


def kinds(folder: Path) -> dict[str, Path]:
    """Return one file of each kind that a start needs."""
    spark = folder / "spark"
    found = {"identity": folder / "strandline.json", "copies": folder / "copies.jsonl", "id": spark / "metadata"}
    for name, place in (("range", "offsets"), ("commit", "commits"), ("list", "sources/0")):
        entries = sorted((spark / place).glob("[0-9]*"), key=lambda path: int(path.name.partition(".")[0]))
        found |= {word: entries[-at] for word, at in ((name, 1), (f"{name} before", 2)) if len(entries) >= at}
    for store in sorted((spark / "state" / "0").glob("[0-9]*")):
        changes = sorted(store.glob("*.changelog"), key=lambda path: int(path.name.partition(".")[0]))
        found |= {"state": changes[-1]} if changes else {}
        found |= {"snapshot": max(store.glob("*.zip"))} if any(store.glob("*.zip")) else {}
    return {name: path for name, path in found.items() if path.exists()}


def tear(folder: Path, draw: Random) -> str:
    """Damage a file and its checksums, as a power cut does; return which and how."""
    name, path = draw.choice(sorted(kinds(folder).items()))
    how = draw.choice(WAYS)
    how(path)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return f"{name} {how.__name__}"


def repaired(folder: Path, backup: Path) -> Fate:
    """Repair as `strandline checkpoint repair` does; restore the folder if something remains damaged."""
    mended = repair(folder)
    if mended.left.goes_on:
        return Fate.MENDED if mended.done else Fate.UNHURT
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    return Fate.SAID


def torn(zygote: Zygote, store: Mapping[str, str], folder: Path, seed: int, times: int) -> Torn:
    """Kill a job and tear its checkpoint, repeatedly."""
    draw, told = Random(seed), Torn()
    life = Life(str(folder / "job"), store, 0, deliveries=(Delivery.EXACTLY_ONCE,), kept=True)
    events = 2 * GROWS
    _must(told, zygote.live(replace(life, events=events)).code, "before the first injection")
    for number in range(times):
        events += GROWS
        told.kills += zygote.live(replace(life, events=events, crash=draw.choice(POINTS))).killed
        what = _one(zygote, replace(life, events=events, per_batch=SIZES[number % 2]), folder / "backup", draw, told)
        verdict = judged(life.job.outputs[0], range(events), batches_of(life))
        told.faults += [f"{what}: {fault}" for fault in verdict.faults]
    return told


def _one(zygote: Zygote, life: Life, backup: Path, draw: Random, told: Torn) -> str:
    home = Path(life.home)
    shutil.rmtree(backup, ignore_errors=True)
    shutil.copytree(home, backup)
    what = tear(home, draw)
    code, fate = zygote.live(life).code, Fate.UNHURT
    if code == REFUSED:
        fate = repaired(home, backup)
        code = zygote.live(life).code
    told.fates[fate] += 1
    if fate is Fate.SAID:
        told.left[what] += 1
    _must(told, code, what)
    return what


def _must(told: Torn, code: int, what: str) -> None:
    if code:
        told.faults.append(f"{what}: the job ended with {code}")
