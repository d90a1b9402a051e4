"""Define the facts of a batch that every task and key group gets: clock, watermarks, partitions, files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.ports.sinks import Stamp


@dataclass(frozen=True, slots=True)
class Batch:
    """The clock in milliseconds, and the watermark of each keyed step before the batch, where it is known.

    The watermark is an upper bound: tasks pre-aggregate elements that are certainly not late.
    """

    clock: int | None = None
    horizons: Mapping[int, int] = field(default_factory=dict)
    partitions: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """For each scan, its known partitions, also those without records."""
    files: Mapping[int, str] = field(default_factory=dict)
    """The files of the batch, by the numbers that stand for their names."""
    measured: bool = False
    """Whether tasks collect metrics."""
    heads: Mapping[int, int] = field(default_factory=dict)
    """For metrics: for each step, the event time that all its partitions had reached before the batch."""
    stamps: tuple[Stamp, ...] = ()
    """For each output, the stamp with which tasks write to its sink."""
    pins: str = ""
    """The folder in which tasks pin answers of lookup tables; empty if no lookup asks for it."""
    tables: Mapping[str, Sequence[Mapping[str, Any]] | None] = field(default_factory=dict)
    """Rows of lookup tables that come with the batch, as stories give them; None for a table that does not answer."""
