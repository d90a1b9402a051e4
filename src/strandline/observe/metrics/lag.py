"""How far a job is behind its sources, from what Spark says of every batch; nobody else is asked.

Records are the difference of two positions. Seconds are how long ago the source's end was where the job is now: the
ends of earlier batches are remembered, and between two of them a straight line is drawn.
"""

import bisect
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_REMEMBERED: Final = 720


@dataclass(frozen=True, slots=True)
class Position:
    """Where a job is in a partition, and where the partition ends."""

    partition: str
    reached: int
    end: int


@dataclass(frozen=True, slots=True)
class Lag:
    """What is left in a partition."""

    records: int
    seconds: float | None = None


class Following:
    """Where the ends of partitions were lately."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._ends: dict[str, deque[tuple[int, int]]] = {}
        self._remembered = remembered

    def lags(self, positions: Iterable[Position], clock: int) -> dict[str, Lag]:
        """Each partition's lag at the time of a batch."""
        found = {}
        for each in positions:
            ends = self._ends.setdefault(each.partition, deque(maxlen=self._remembered))
            if not ends or each.end > ends[-1][1]:
                ends.append((clock, each.end))
            records = max(each.end - each.reached, 0)
            found[each.partition] = Lag(records, _seconds(ends, each.reached, clock) if records else 0.0)
        return found


def _seconds(ends: Iterable[tuple[int, int]], reached: int, clock: int) -> float | None:
    """Since the end was where the job is now; None if that is longer ago than is remembered."""
    known = [*ends]
    place = bisect.bisect_right([end for _, end in known], reached)
    if place == 0:
        return (clock - known[0][0]) / 1000 if len(known) > 1 else None
    (then, before), (now, after) = known[place - 1], known[min(place, len(known) - 1)]
    share = (reached - before) / (after - before) if after > before else 0.0
    return max(clock - (then + share * (now - then)), 0) / 1000


def positions_in(sources: Iterable[Mapping[str, Any]]) -> list[Position]:
    """The positions of topics in what Spark tells of a batch's sources; of others it tells nothing we could count."""
    found = []
    for source in sources:
        latest, reached = source.get("latestOffset"), source.get("endOffset")
        if isinstance(latest, Mapping) and isinstance(reached, Mapping):
            for topic, ends in latest.items():
                mine = reached.get(topic)
                if isinstance(ends, Mapping) and isinstance(mine, Mapping):
                    found += [
                        Position(f"{topic}-{number}", int(mine[number]), int(end))
                        for number, end in ends.items()
                        if number in mine
                    ]
    return found
