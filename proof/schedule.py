"""Draw the schedule of kills from a seed, so that all deliveries and sinks get the same ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from strandline.plan.endpoints import Delivery


class Kind(StrEnum):
    """What is killed, and when."""

    POINT = "point"
    """The job, at a named point of a batch."""
    RANDOM = "random"
    """The job, at any moment."""
    WORKER = "worker"
    """A Python worker, and later the job."""
    SERVICE = "service"
    """The database or the broker, and later the job."""
    TORN = "torn"
    """The job, at any moment, with a torn checkpoint file."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill. `said` is a point and its pass number; otherwise the job lives for `seconds`."""

    kind: Kind
    said: str = ""
    seconds: float = 0

    @property
    def point(self) -> str:
        return self.said.partition(":")[0] or self.kind


_OTHERS: Final = (Kind.RANDOM, Kind.TORN, Kind.WORKER, Kind.SERVICE)
_EACH: Final = ("C6", "C7", "C11", "C12")
_BY_SINK: Final = ("C9", "C10")


def schedule(seed: int, kills: int, semantics: Sequence[str], stores: Sequence[str]) -> list[Kill]:
    """Build the schedule: first points that affect all tables, then points and other kills alternately."""
    draw = Random(seed)
    tables = len(semantics) * len(stores)
    marked = len(stores) if Delivery.AT_MOST_ONCE in semantics else 0
    served = bool({*stores} & {"postgres", "kafka"})
    # A mark without rows affects one table; once all sinks have committed, all get repeated batches.
    first = [*(f"marked:{turn}" for turn in range(1, marked + 1)), "C11:1"]
    points = [*_EACH, *_BY_SINK, "C9"]
    draw.shuffle(points)
    points += ["C10", "marked"] if marked else ["C10"]
    found = [Kill(Kind.POINT, said) for said in first[:kills]]
    for number in range(kills - len(found)):
        kind = draw.choice(_OTHERS) if number % 2 else Kind.POINT
        if kind is Kind.SERVICE and not served:
            kind = Kind.RANDOM
        point = points[number // 2 % len(points)]
        most = {"marked": marked, **dict.fromkeys(_BY_SINK, tables + 1)}.get(point, 1)
        turn = draw.randint(1, 2 * most)
        seconds = round(draw.uniform(0, 4), 3)
        found.append(Kill(kind, f"{point}:{turn}" if kind is Kind.POINT else "", seconds))
    return found
