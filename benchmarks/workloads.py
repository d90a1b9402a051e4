"""Define the workloads: sum and count by key, in some kind of window, emitted once or with each change.

Or deduplication.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, assert_never

DELAY: Final = 5
"""Watermark delay in seconds: more than the usual disorder, less than the lag of late events."""


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Tumbling windows, in seconds."""

    seconds: int = 20


@dataclass(frozen=True, slots=True)
class Sliding:
    """Sliding windows, in seconds."""

    seconds: int = 60
    every: int = 1


@dataclass(frozen=True, slots=True)
class Session:
    """Session windows, gap in seconds."""

    gap: int = 2


@dataclass(frozen=True, slots=True)
class Everything:
    """A global window per key with a time to live in seconds of processing time."""

    forgotten: int = 600


@dataclass(frozen=True, slots=True)
class Distinct:
    """Deduplication: the first of equal events passes at once; state lasts for a window."""

    seconds: int = 20


Window = Tumbling | Sliding | Session | Everything | Distinct


class Panes(StrEnum):
    """When a window emits."""

    ON_TIME = "on_time"
    """Once, when the watermark passes its end."""
    ALL = "all"
    """With each batch that changes it, early, on time and for a minute late; each pane retracts the one before."""
    CHANGES = "changes"
    """With each batch that changes it; the last row counts."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The computed query."""

    window: Window
    panes: Panes = Panes.ON_TIME

    @property
    def lateness(self) -> int:
        """Allowed lateness in seconds."""
        return 60 if self.panes is Panes.ALL else 0

    @property
    def name(self) -> str:
        panes = {Panes.ON_TIME: "", Panes.ALL: "-all-panes", Panes.CHANGES: "-changes"}[self.panes]
        match self.window:
            case Tumbling(seconds):
                return f"tumbling-{seconds}s{panes}"
            case Sliding(seconds, every):
                return f"sliding-{seconds}s-{every}s{panes}"
            case Session(gap):
                return f"session-{gap}s{panes}"
            case Everything(forgotten):
                return f"everything-{forgotten}s{panes}"
            case Distinct(seconds):
                return f"distinct-{seconds}s{panes}"
        assert_never(self.window)


class Contestant(StrEnum):
    """The system that runs it."""

    OURS = "ours"
    AT_ONCE = "ours-at-once"
    """Strandline over a bounded folder, as one batch."""
    PLAIN = "plain-batch"
    """spark.read and groupBy, as a batch job: no watermark, no state, nothing late."""
    POLARS = "polars"
    """Polars over the files alone."""
    DUCKDB = "duckdb"
    """DuckDB over the files alone."""
    POLARS_EACH = "polars-each"
    """Single-threaded Polars on each core at once: the gain of more cores for independent programs."""
    NATIVE_ROCKSDB = "native-rocksdb"
    NATIVE_MEMORY = "native-memory"
    BY_KEY = "by-key"
    """transformWithStateInPandas with state and timers per key, as in Spark's guide."""
    BY_KEY_ROW = "by-key-row"
    """transformWithState with single rows."""
    CEILING = "pass-through"
    """Rows to Python and back without computation: the upper bound of transport."""


_WINDOWS: Final[dict[str, type[Window]]] = {
    "tumbling": Tumbling, "sliding": Sliding, "session": Session, "everything": Everything, "distinct": Distinct,
}  # fmt: skip


def to_json(workload: Workload) -> dict[str, Any]:
    """Serialise a workload for the process that runs it."""
    kind = next(name for name, each in _WINDOWS.items() if isinstance(workload.window, each))
    return {"window": kind, **asdict(workload.window), "panes": workload.panes.value}


def from_json(told: dict[str, Any]) -> Workload:
    """Deserialise a workload."""
    lengths = {name: value for name, value in told.items() if name not in ("window", "panes")}
    return Workload(_WINDOWS[told["window"]](**lengths), Panes(told["panes"]))
