"""Define the protocol of story players: the reference, the kernel and Spark implement it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from strandline.model.counts import Counts
from strandline.model.elements import Element, Timestamp
from strandline.model.panes import Emitted


class Player(Protocol):
    """Play one pipeline. Every call that returns `Emitted` is a batch and returns its whole output."""

    def feed(self, elements: Sequence[Element]) -> Emitted:
        """Play a batch of elements, in their order in the story; processing time does not advance."""
        ...

    def move_watermark(self, to: Timestamp, of: str | None = None, source: str | None = None) -> Emitted:
        """Advance the watermark of a partition or input, or of all; a lower one is ignored.

        `source` names the input where a pipeline has several.
        """
        ...

    def move_clock(self, to: Timestamp) -> Emitted:
        """Advance processing time; an earlier time is ignored."""
        ...

    def fall_idle(self, name: str | None, source: str | None = None) -> Emitted:
        """Mark a partition or input as idle."""
        ...

    def return_active(self, name: str | None, source: str | None = None) -> Emitted:
        """Mark a partition or input as active; a partition may be new."""
        ...

    def finish(self, name: str | None, source: str | None = None) -> Emitted:
        """End a partition or input."""
        ...

    def drain(self) -> Emitted:
        """End all input."""
        ...

    def set_tables(self, tables: Mapping[str, Sequence[Mapping[str, Any]] | None]) -> None:
        """Set the rows of lookup tables by name; None if a table does not answer."""
        ...

    def restart(self) -> Self:
        """Stop, and return a player that continues from the saved state only."""
        ...

    def close(self) -> None:
        """Release resources outside memory."""
        ...

    def watermark_of(self, name: str | None = None) -> Timestamp:
        """Return the watermark of an operator, or the lowest; the beginning of time before there is one."""
        ...

    def output_watermark_of(self, name: str | None = None) -> Timestamp:
        """Return the watermark that an operator forwards, or the lowest of those that write to an output."""
        ...

    def rows_of(self, name: str | None = None) -> int:
        """Return the number of windows held, over all keys: open ones, and marks of closed ones."""
        ...

    @property
    def is_idle(self) -> bool:
        """Tell whether every partition or input is idle."""
        ...

    @property
    def counts(self) -> Mapping[str, Counts]:
        """Return what became of all elements so far, by step, or by output that elements reach without one."""
        ...
