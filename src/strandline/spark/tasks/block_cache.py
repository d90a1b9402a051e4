"""Blocks that a worker has read or written lately, so that Spark need not be asked for them again.

Spark hands bytes of state to Python as a text of one character each, which takes its time (docs/decisions/0033). Most
blocks of a large state stay as they are from batch to batch, and the index of a key group, which is always read, has a
digest of each: what is remembered counts if it has that digest, whoever wrote it last and whatever became of it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MOST: Final = 64 << 20
"""Bytes that one worker remembers. What does not fit is asked for: to forget others for its sake would, where all are
needed in turns, forget each of them before its turn."""
GONE_AFTER_SECONDS: Final = 600
"""A key group that was not played here for so long makes room: its job may have ended."""


@dataclass(slots=True)
class _Group:
    seen: float = field(default_factory=time.monotonic)
    blocks: dict[str, tuple[str, bytes]] = field(default_factory=dict)


@dataclass(slots=True)
class Remembered:
    """By key group and place, blocks and their digests."""

    most: int = MOST
    size: int = 0
    """Bytes that are remembered."""
    _groups: dict[int, _Group] = field(default_factory=dict)

    def begin(self, to: int, digests: Mapping[str, str]) -> None:
        """A key group is played and has blocks with these digests: others that were there are forgotten."""
        group = self._groups.setdefault(to, _Group())
        group.seen = time.monotonic()
        for place, (known, _) in list(group.blocks.items()):
            if digests.get(place) != known:
                self.forget(to, place)

    def recall(self, to: int, place: str, digest: str) -> bytes | None:
        """The block with this digest, if it is remembered."""
        group = self._groups.get(to)
        known, data = (None, None) if group is None else group.blocks.get(place, (None, None))
        return data if known == digest else None

    def keep(self, to: int, place: str, digest: str, data: bytes) -> None:
        """From now on this block stands there, if there is room for it."""
        self.forget(to, place)
        if self.size + len(data) > self.most:
            self._make_room(to)
        if self.size + len(data) <= self.most:
            self._groups.setdefault(to, _Group()).blocks[place] = digest, data
            self.size += len(data)

    def forget(self, to: int, place: str) -> None:
        """It has changed, or is no more."""
        group = self._groups.get(to)
        known = None if group is None else group.blocks.pop(place, None)
        self.size -= 0 if known is None else len(known[1])

    def _make_room(self, to: int) -> None:
        now = time.monotonic()
        for other, group in list(self._groups.items()):
            if other != to and now - group.seen > GONE_AFTER_SECONDS:
                self.size -= sum(len(data) for _, data in group.blocks.values())
                del self._groups[other]


LATELY: Final = Remembered()
"""What this process remembers."""
