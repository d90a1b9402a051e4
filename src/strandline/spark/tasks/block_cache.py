"""Cache state blocks in a worker, so that Spark is not asked for them again.

Spark sends state to Python as text of one character a byte, which is slow (decision 0033). Most blocks of a large state
do not change from batch to batch. The index of a key group is always read, and has the digest of each block. A cached
block is valid if it has that digest, whichever process wrote it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MOST: Final = 64 << 20
"""Bytes that one worker caches. Blocks that do not fit are not cached. To evict others instead would, where all are
needed in turn, evict each before its turn."""
GONE_AFTER_SECONDS: Final = 600
"""A key group that did not run here for this time is evicted: its job may have ended."""


@dataclass(slots=True)
class _Group:
    seen: float = field(default_factory=time.monotonic)
    blocks: dict[str, tuple[str, bytes]] = field(default_factory=dict)


@dataclass(slots=True)
class BlockCache:
    """Blocks and their digests, by key group and place."""

    most: int = MOST
    size: int = 0
    """Bytes that are cached."""
    _groups: dict[int, _Group] = field(default_factory=dict)

    def begin(self, to: int, digests: Mapping[str, str]) -> None:
        """Start a step of a key group whose blocks have these digests; drop blocks with other digests."""
        group = self._groups.setdefault(to, _Group())
        group.seen = time.monotonic()
        for place, (known, _) in list(group.blocks.items()):
            if digests.get(place) != known:
                self.forget(to, place)

    def get(self, to: int, place: str, digest: str) -> bytes | None:
        """Return the block with this digest; None if it is not cached."""
        group = self._groups.get(to)
        known, data = (None, None) if group is None else group.blocks.get(place, (None, None))
        return data if known == digest else None

    def keep(self, to: int, place: str, digest: str, data: bytes) -> None:
        """Cache a block, if there is room."""
        self.forget(to, place)
        if self.size + len(data) > self.most:
            self._make_room(to)
        if self.size + len(data) <= self.most:
            self._groups.setdefault(to, _Group()).blocks[place] = digest, data
            self.size += len(data)

    def forget(self, to: int, place: str) -> None:
        """Drop a block that changed or was removed."""
        group = self._groups.get(to)
        known = None if group is None else group.blocks.pop(place, None)
        self.size -= 0 if known is None else len(known[1])

    def _make_room(self, to: int) -> None:
        now = time.monotonic()
        for other, group in list(self._groups.items()):
            if other != to and now - group.seen > GONE_AFTER_SECONDS:
                self.size -= sum(len(data) for _, data in group.blocks.values())
                del self._groups[other]


CACHE: Final = BlockCache()
"""The cache of this worker."""
