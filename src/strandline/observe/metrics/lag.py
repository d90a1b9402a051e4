"""Compute how far a job is behind its sources, from the ends that the broker tells and from Spark's progress reports.

Records are the difference of two positions. Seconds are how long ago the source's end was at the job's current
position: the ends of earlier batches are remembered, and interpolated linearly.
"""

import bisect
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.ports.sources import Position

_REMEMBERED: Final = 720


@dataclass(frozen=True, slots=True)
class Lag:
    """Unread records of a partition."""

    records: int
    seconds: float | None = None


class EndHistory:
    """The recent end positions of partitions."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._ends: dict[str, deque[tuple[int, int]]] = {}
        self._remembered = remembered

    def lags(self, positions: Iterable[Position], clock: int) -> dict[str, Lag]:
        """Each partition's lag at the time of a batch."""
        found = {}
        for each in positions:
            ends = self._ends.setdefault(each.partition, deque(each.earlier, maxlen=self._remembered))
            if not ends or each.end > ends[-1][1]:
                ends.append((clock, each.end))
            records = max(each.end - each.reached, 0)
            found[each.partition] = Lag(records, _seconds(ends, each.reached, clock) if records else 0.0)
        return found


def _seconds(ends: Iterable[tuple[int, int]], reached: int, clock: int) -> float | None:
    """How long ago the end was at the job's position, in seconds; None if that is longer ago than remembered."""
    known = [*ends]
    place = bisect.bisect_right([end for _, end in known], reached)
    if place == 0:
        return (clock - known[0][0]) / 1000 if len(known) > 1 else None
    (then, before), (now, after) = known[place - 1], known[min(place, len(known) - 1)]
    share = (reached - before) / (after - before) if after > before else 0.0
    return max(clock - (then + share * (now - then)), 0) / 1000


def positions_in(sources: Iterable[Mapping[str, Any]]) -> list[Position]:
    """The positions of topics in Spark's progress report of sources; other sources report nothing countable."""
    found = []
    for source in sources:
        latest, reached = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        for topic, ends in latest.items():
            positions = reached.get(topic)
            if isinstance(ends, Mapping) and isinstance(positions, Mapping):
                found += [
                    Position(f"{topic}-{number}", int(positions[number]), int(end))
                    for number, end in ends.items()
                    if number in positions
                ]
    return found


def _offsets(found: object) -> Mapping[str, Any]:
    """The offsets in a report: PySpark turns the JSON object of Spark's own report into its text."""
    try:
        offsets = json.loads(found) if isinstance(found, str) else found
    except ValueError:
        return {}
    return offsets if isinstance(offsets, Mapping) else {}
