"""Find heavy hitters in bounded space: the Space-Saving sketch of Metwally, Agrawal and El Abbadi, with exponential
decay.

It holds a fixed number of keys; a new one replaces the least, and takes over its count as possible error. A key whose
share of the stream is above one in `room` is always included. Older batches count half as much, and less with time.
"""

from collections.abc import Mapping
from typing import Final

ROOM: Final = 64
_HALF_AFTER: Final = 256
"""Batches after which earlier counts are halved."""


class HeavyHitters:
    """The heavy hitters of one step."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._counts: dict[str, float] = {}
        self._errors: dict[str, float] = {}
        self._total = 0.0
        self._batches = 0

    def add(self, counts: Mapping[str, int], total: int) -> None:
        """Add a batch: the elements by key, and the elements of all keys together."""
        self._batches += 1
        if self._batches % _HALF_AFTER == 0:
            self._halve()
        self._total += total
        for key, many in counts.items():
            self._offer(key, many)

    def top(self, many: int) -> list[tuple[str, int, float]]:
        """The heaviest keys: the approximate number of elements, and the guaranteed share of all."""
        ranked = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))[:many]
        sure = {key: count - self._errors.get(key, 0.0) for key, count in ranked}
        return [(key, round(count), min(sure[key] / self._total, 1.0) if self._total else 0.0) for key, count in ranked]

    def _offer(self, key: str, many: int) -> None:
        if key in self._counts or len(self._counts) < self._room:
            self._counts[key] = self._counts.get(key, 0.0) + many
            return
        least = min(self._counts, key=lambda each: (self._counts[each], each))
        error = self._counts.pop(least)
        self._errors.pop(least, None)
        self._counts[key] = error + many
        self._errors[key] = error

    def _halve(self) -> None:
        self._total /= 2
        self._counts = {key: count / 2 for key, count in self._counts.items() if count > 1}
        self._errors = {key: error / 2 for key, error in self._errors.items() if key in self._counts}
