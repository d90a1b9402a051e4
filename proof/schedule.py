"""Which kill comes when: drawn from a seed, so that every delivery and every sink meets the same ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from strandline.plan.endpoints import Delivery


class Kind(StrEnum):
    """Who is killed, and when."""

    POINT = "point"
    """The job, at a named point of a batch."""
    RANDOM = "random"
    """The job, at any moment."""
    WORKER = "worker"
    """A Python worker of Spark, and later the job."""
    SERVICE = "service"
    """The database or the broker, and later the job."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill. `said` names a point and the n-th time it is passed; `seconds` is how long the job lives otherwise."""

    kind: Kind
    said: str = ""
    seconds: float = 0

    @property
    def point(self) -> str:
        return self.said.partition(":")[0] or self.kind


_WEIGHTS: Final = {Kind.POINT: 0.75, Kind.RANDOM: 0.15, Kind.WORKER: 0.05, Kind.SERVICE: 0.05}
_EACH: Final = ("C6", "C7", "C11", "C12")
_BY_SINK: Final = ("C9", "C10")


def schedule(seed: int, kills: int, semantics: Sequence[str], stores: Sequence[str]) -> list[Kill]:
    """The first ones hit every point, and with it what hurts each delivery; then as it comes."""
    draw = Random(seed)
    tables = len(semantics) * len(stores)
    marked = len(stores) if Delivery.AT_MOST_ONCE in semantics else 0
    served = bool({*stores} & {"postgres", "kafka"})
    points = [*_EACH, *_BY_SINK, *_BY_SINK, *(["marked"] if marked else [])]
    draw.shuffle(points)
    found = []
    for number in range(kills):
        kind = Kind.POINT if number < len(points) else draw.choices([*_WEIGHTS], [*_WEIGHTS.values()])[0]
        if kind is Kind.SERVICE and not served:
            kind = Kind.RANDOM
        point = points[number % len(points)]
        most = {"marked": marked, **dict.fromkeys(_BY_SINK, tables + 1)}.get(point, 1)
        turn = draw.randint(1, 2 * most)
        seconds = round(draw.uniform(0, 4), 3)
        found.append(Kill(kind, f"{point}:{turn}" if kind is Kind.POINT else "", seconds))
    return found
