"""What every player of a story can do, whether it is the oracle, the kernel or Spark carrying it."""

from collections.abc import Sequence
from typing import Protocol, Self

from strandline.model.elements import Element, Timestamp
from strandline.model.panes import Emitted


class Player(Protocol):
    """Plays one pipeline. Each call but the last two is a batch, and returns all that the batch brought out."""

    def feed(self, elements: Sequence[Element]) -> Emitted:
        """One batch of elements, in the order in which they were written; the clock stands still."""
        ...

    def move_watermark(self, to: Timestamp, of: str | None = None) -> Emitted:
        """The watermark of a partition or input is told, or that of all; a smaller one is ignored."""
        ...

    def move_clock(self, to: Timestamp) -> Emitted:
        """Processing time moves on; an earlier one is ignored."""
        ...

    def fall_idle(self, name: str) -> Emitted:
        """A partition or input falls idle."""
        ...

    def return_active(self, name: str) -> Emitted:
        """A partition or input returns; a partition may be new."""
        ...

    def finish(self, name: str) -> Emitted:
        """A partition or input ends."""
        ...

    def drain(self) -> Emitted:
        """The end of input."""
        ...

    def restart(self) -> Self:
        """Stops, and gives the player that goes on from what was kept: nothing else may be known to it."""
        ...

    def close(self) -> None:
        """Lets go of whatever is held outside of memory."""
        ...

    @property
    def watermark(self) -> Timestamp:
        """The beginning of time before there is one."""
        ...

    @property
    def output_watermark(self) -> Timestamp:
        """What the step forwards."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether every partition or input is idle."""
        ...

    @property
    def rows(self) -> int:
        """The windows still held, over all keys: open ones, and marks of closed ones; zero when nothing is kept."""
        ...
