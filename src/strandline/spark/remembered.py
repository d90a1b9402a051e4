"""Blocks that a worker has read or written lately, so that Spark need not be asked for them again.

Spark hands bytes of state to Python as text, one by one: it costs more than all that is done with them. Most blocks of
a large state stay as they are from batch to batch, and the index of a key group, which is always read, has a digest of
each: what is remembered counts if it has that digest, whoever wrote it last and whatever became of it.
"""

from dataclasses import dataclass, field
from typing import Final

MOST: Final = 64 << 20
"""Bytes that one worker remembers. What does not fit is asked for."""

Where = tuple[int, str]
"""An address, and a place in its state."""


@dataclass(slots=True)
class Remembered:
    """By where they stand, blocks and their digests. Of a block that changes only the last is kept."""

    most: int = MOST
    _blocks: dict[Where, tuple[str, bytes]] = field(default_factory=dict)
    _size: int = 0

    @property
    def size(self) -> int:
        """Bytes that are remembered."""
        return self._size

    def recall(self, where: Where, digest: str | None) -> bytes | None:
        """The block with this digest, if it is remembered."""
        known, data = self._blocks.get(where, (None, None))
        return data if digest is not None and known == digest else None

    def keep(self, where: Where, digest: str, data: bytes) -> None:
        """As much as there is room for: to forget others for its sake would in the end forget each before its turn."""
        self.forget(where)
        if self._size + len(data) <= self.most:
            self._blocks[where] = digest, data
            self._size += len(data)

    def forget(self, where: Where) -> None:
        """It has changed, or is no more."""
        known = self._blocks.pop(where, None)
        self._size -= len(known[1]) if known is not None else 0


LATELY: Final = Remembered()
"""What this process remembers."""
