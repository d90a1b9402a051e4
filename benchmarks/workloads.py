"""What is asked of everybody: a sum and a count by key, in windows of some kind, said once or with every change.

Or each event once, however often it came.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, assert_never

DELAY: Final = 5
"""Seconds the watermark stays behind: more than the usual disorder, less than what makes an event late."""


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of some seconds, side by side."""

    seconds: int = 20


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of some seconds, one every so many."""

    seconds: int = 60
    every: int = 1


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that end after some seconds of silence."""

    gap: int = 2


@dataclass(frozen=True, slots=True)
class Everything:
    """One window for all time, of a key that is forgotten so many seconds after its last event, by the clock."""

    forgotten: int = 600


@dataclass(frozen=True, slots=True)
class Distinct:
    """Nothing is summed: the first of events that are the same goes on, at once. They are known for a window."""

    seconds: int = 20


Window = Tumbling | Sliding | Session | Everything | Distinct


class Panes(StrEnum):
    """When a window speaks."""

    ON_TIME = "on_time"
    """Once, when the watermark passes its end."""
    ALL = "all"
    """With every batch that changes it, early, on time and for a minute late; each pane takes back the one before."""
    CHANGES = "changes"
    """With every batch that changes it; what it said last holds."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is computed."""

    window: Window
    panes: Panes = Panes.ON_TIME

    @property
    def lateness(self) -> int:
        """Seconds for which a window still takes elements after its end."""
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
    """Who runs it."""

    OURS = "ours"
    AT_ONCE = "ours-at-once"
    """Ours over a folder that ends: one batch."""
    PLAIN = "plain-batch"
    """spark.read and groupBy, as a batch job: no watermark, no state, nothing late."""
    POLARS = "polars"
    """Polars over the files, and nothing else."""
    DUCKDB = "duckdb"
    """DuckDB likewise."""
    POLARS_EACH = "polars-each"
    """Polars with one thread on each core, programs that share nothing: what a machine gives that has a core more."""
    NATIVE_ROCKSDB = "native-rocksdb"
    NATIVE_MEMORY = "native-memory"
    BY_KEY = "by-key"
    """transformWithStateInPandas, a state and a timer for each key, as Spark's guide shows it."""
    BY_KEY_ROW = "by-key-row"
    """The same with transformWithState, which hands over single rows."""
    CEILING = "pass-through"
    """Rows to Python and back, nothing computed: the ceiling for whatever crosses."""


_WINDOWS: Final[dict[str, type[Window]]] = {
    "tumbling": Tumbling, "sliding": Sliding, "session": Session, "everything": Everything, "distinct": Distinct,
}  # fmt: skip


def to_json(workload: Workload) -> dict[str, Any]:
    """A workload as it travels to the process that runs it."""
    kind = next(name for name, each in _WINDOWS.items() if isinstance(workload.window, each))
    return {"window": kind, **asdict(workload.window), "panes": workload.panes.value}


def from_json(told: dict[str, Any]) -> Workload:
    """A workload as it was sent."""
    lengths = {name: value for name, value in told.items() if name not in ("window", "panes")}
    return Workload(_WINDOWS[told["window"]](**lengths), Panes(told["panes"]))
