"""Define the windows suite: cells (contestant, workload, size) and the rows that compare them."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Generic, Protocol, Self, TypeVar

from benchmarks.corpus import Corpus
from benchmarks.feeds import Form
from benchmarks.workloads import Contestant, Panes, Session, Sliding, Tumbling, Workload

CORES: Final = 2
"""Default of all cells."""
WARM_UP: Final = 4
"""Warm-up batches, in which code is generated, compiled and loaded."""
WARM_SECONDS: Final = 30.0
"""Warm-up seconds in the same JVM, whose compilers take half of the time at first."""
CHECKED: Final = 3
"""Batches whose output is checked pane by pane."""

TUMBLING: Final = Workload(Tumbling())
SLIDING: Final = Workload(Sliding())
SESSION: Final = Workload(Session())
ALL_PANES: Final = Workload(Tumbling(), Panes.ALL)


class Entry(Protocol):
    """What the harness needs to know of a cell."""

    @property
    def name(self) -> str: ...

    @property
    def warm_up(self) -> int: ...

    @property
    def warm_seconds(self) -> float: ...

    @property
    def check(self) -> bool: ...


OneCell = TypeVar("OneCell", bound=Entry)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measured combination of contestant, workload and size."""

    name: str
    contestant: Contestant
    workload: Workload
    corpus: Corpus
    warm_up: int = WARM_UP
    check: bool = True
    """Whether output is checked; not if the same was checked on a shorter corpus."""
    form: Form | None = None
    """Record format for broker sources."""
    warm_seconds: float = 0
    """Warm-up seconds."""
    cores: int = CORES
    partitions: int | None = None
    """Shuffle partitions; default: cores."""


@dataclass(frozen=True, slots=True)
class Row:
    """A table row: one cell against another, by events per CPU second."""

    name: str
    against: str
    cell: str
    peer: str
    floor: float | None = None
    goal: float | None = None
    lower_is_better: bool = False
    by_wall: bool = False
    """Compare by events per second instead."""
    share_of: tuple[str, str] | None = None
    """Two more cells; the ratio is divided by theirs."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Return all compared cells."""
        return (self.cell, self.peer, *(self.share_of or ()))


@dataclass(frozen=True, slots=True)
class Group(Generic[OneCell]):
    """Cells that are compared with each other and therefore run alternately."""

    name: str
    cells: tuple[OneCell, ...]
    rounds: int = 9
    """Maximum rounds, since no floor depends on them."""


@dataclass(frozen=True, slots=True)
class Latency:
    """The open-loop run: duration and warm-up."""

    seconds: int
    warm_up: int


@dataclass(frozen=True, slots=True)
class Suite(Generic[OneCell]):
    """All that is measured."""

    name: str
    groups: tuple[Group[OneCell], ...]
    rounds: int
    rows: tuple[Row, ...]
    """Rows with floor and goal."""
    reported: tuple[Row, ...] = ()
    """Reported rows without a floor."""
    latency: Latency | None = None

    def held_to(self, names: Collection[str]) -> Self:
        """Return the suite restricted to these rows, unless others are named."""
        held = tuple(row for row in self.rows if row.name in names)
        others = tuple(row for row in self.rows if row not in held)
        return replace(self, rows=held, reported=(*others, *self.reported))


def full() -> Suite[Cell]:
    """Return the full suite, whose results are kept."""
    return Suite("full", _groups(_Sizes()), 3, ROWS, REPORTED, Latency(seconds=60, warm_up=15))


def quick() -> Suite[Cell]:
    """Return a suite with one row of each kind at a tenth of the size; its numbers mean little."""
    small = _Sizes(
        per_batch=150_000,
        session=60_000,
        batches=5,
        thin_100k=150,
        thin_1m=300,
        growth=4,
        sliding=(1_000, 15_000),
        warm_seconds=0,
    )
    return Suite("quick", _groups(small), 1, ROWS, REPORTED, Latency(seconds=15, warm_up=5)).held_to(AT_FIRST)


@dataclass(frozen=True, slots=True)
class _Sizes:
    per_batch: int = 1_000_000
    session: int = 400_000
    batches: int = 9
    thin_100k: int = 50
    thin_1m: int = 200
    growth: int = 10
    sliding: tuple[int, int] = (10_000, 100_000)
    """Keys and events per batch of sliding windows, which do sixty times the work."""
    warm_seconds: float = WARM_SECONDS


def _groups(sizes: _Sizes) -> tuple[Group[Cell], ...]:
    hundred_k = Corpus(100_000, sizes.batches, sizes.per_batch)
    thousand = Corpus(1_000, sizes.batches, sizes.per_batch)
    million = Corpus(1_000_000, sizes.batches, sizes.per_batch)
    hot = Corpus(100_000, sizes.batches, sizes.per_batch, hot=True)
    timely = Corpus(100_000, sizes.batches, sizes.session, late=False)
    slid = Corpus(sizes.sliding[0], sizes.batches, sizes.sliding[1])
    grown = (Corpus(100_000, WARM_UP + size, sizes.per_batch) for size in (sizes.growth // 10 or 1, sizes.growth))
    thin_100k = Corpus(100_000, 5, sizes.per_batch, thin=sizes.thin_100k)
    thin_1m = Corpus(1_000_000, 5, sizes.per_batch, thin=sizes.thin_1m)
    ours, rocksdb, memory = Contestant.OURS, Contestant.NATIVE_ROCKSDB, Contestant.NATIVE_MEMORY
    by_key, through = Contestant.BY_KEY, Contestant.CEILING
    short, long = grown
    # The peer by key is so slow that two warm-up batches are enough.
    warmed = partial(Cell, warm_seconds=sizes.warm_seconds)
    return (
        Group("tumbling", (
            warmed("ours", ours, TUMBLING, hundred_k),
            warmed("native-rocksdb", rocksdb, TUMBLING, hundred_k),
            warmed("native-memory", memory, TUMBLING, hundred_k),
            warmed("pass-through", through, TUMBLING, hundred_k),
            warmed("ours-all-panes", ours, ALL_PANES, hundred_k),
            Cell("by-key-100k", by_key, TUMBLING, thin_100k, warm_up=2),
        )),
        Group("keys", (
            warmed("ours-1k", ours, TUMBLING, thousand),
            warmed("native-1k", rocksdb, TUMBLING, thousand),
            warmed("ours-1m", ours, TUMBLING, million),
            warmed("native-1m", rocksdb, TUMBLING, million),
            Cell("by-key-1k", by_key, TUMBLING, replace(thousand, batches=5), warm_up=2),
            Cell("by-key-1m", by_key, TUMBLING, thin_1m, warm_up=2),
        )),
        Group("sliding", (
            warmed("ours-sliding", ours, SLIDING, slid),
            warmed("native-sliding", rocksdb, SLIDING, slid),
        )),
        Group("session", (
            warmed("ours-session", ours, SESSION, timely),
            warmed("native-session", rocksdb, SESSION, timely),
        ), rounds=2),
        Group("hot", (
            warmed("ours-hot", ours, TUMBLING, hot),
            warmed("native-hot", rocksdb, TUMBLING, hot),
        ), rounds=2),
        Group("growth", (
            warmed("ours-short", ours, TUMBLING, short, check=False),
            warmed("ours-long", ours, TUMBLING, long, check=False),
        ), rounds=2),
    )  # fmt: skip


ROWS: Final = (
    Row("tumbling-rocksdb", "native append on RocksDB, tumbling, 100 k keys", "ours", "native-rocksdb", 1.3, 2.0),
    Row("tumbling-memory", "native append on the in-memory store", "ours", "native-memory", 0.9, 1.3),
    Row("sliding", "native, sliding with 60 overlaps", "ours-sliding", "native-sliding", 3.0, 10.0),
    Row("all-panes", "early + late + retracting panes, against our own on-time-only run",
        "ours-all-panes", "ours", 0.6, 0.85),
    Row("all-panes-native", "native append on RocksDB with on-time panes only, ours with all panes",
        "ours-all-panes", "native-rocksdb", 0.4, 0.7),
    Row("by-key-1k", "transformWithStateInPandas by key, 1 k keys", "ours-1k", "by-key-1k", 2.0, 5.0),
    Row("by-key-100k", "transformWithStateInPandas by key, 100 k keys", "ours", "by-key-100k", 10.0, 30.0),
    Row("by-key-1m", "transformWithStateInPandas by key, 1 M keys", "ours-1m", "by-key-1m", 30.0, 100.0),
    Row("pass-through", "the bare Arrow pass-through (the ceiling)", "ours", "pass-through", 0.5, 0.8),
    Row("keys-1k-1m", "per-event cost, 1 k → 1 M keys", "ours-1k", "ours-1m", 2.5, 1.5, lower_is_better=True),
)  # fmt: skip
"""Rows with floor and goal; the last one is early-pane latency, with its own unit."""

AT_FIRST: Final = ("tumbling-rocksdb", "sliding", "all-panes", "by-key-100k")
"""One of each kind, for a quick run; each cell costs at least a JVM start."""

REPORTED: Final = (
    Row("session", "native sessions on RocksDB, 100 k keys", "ours-session", "native-session"),
    Row("hot-rocksdb", "native append on RocksDB, hot keys", "ours-hot", "native-hot"),
    Row("hot-even", "hot keys, against our own run with even keys", "ours-hot", "ours"),
    Row("keys-1k", "native append on RocksDB, 1 k keys", "ours-1k", "native-1k"),
    Row("keys-1m", "native append on RocksDB, 1 M keys", "ours-1m", "native-1m"),
    Row("events-10x", "per-event cost, 10 times the events", "ours-short", "ours-long", lower_is_better=True),
)
"""Reported rows without a floor."""

LATENCY_FLOOR: Final = 150.0
LATENCY_GOAL: Final = 50.0
