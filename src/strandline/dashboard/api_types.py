"""What the API tells, as values; its description is made from them, so that the two cannot differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "bad", "off"]
Unit = Literal["seconds", "per_second", "rows", "records"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request was refused."""

    error: str
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Golden:
    """One of the five numbers: as it is, as it was lately, and whether that is well."""

    name: str
    label: str
    unit: Unit
    value: float | None
    beside: str
    verdict: Verdict
    sentence: str
    series: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Sign:
    """A verdict: what is judged, its value for people, and why."""

    name: str
    value: str
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True)
class JobCard:
    """A job on one line."""

    id: str
    name: str
    folder: str
    state: str
    verdict: Verdict
    sentence: str
    seen: int | None
    batch: int | None
    golden: tuple[Golden, ...]


@dataclass(frozen=True, slots=True)
class JobList:
    now: int
    version: str
    read_only: bool
    jobs: tuple[JobCard, ...]


@dataclass(frozen=True, slots=True)
class Alarm:
    rule: str
    state: str
    since: int
    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """Everyone who came in, and what became of them, over the batches that are looked at.

    `read` came from the sources; `again` were offered to a further step.
    """

    read: int
    again: int
    contributed: int
    late: int
    dead: int
    filtered: int
    emitted: int
    retractions: int


@dataclass(frozen=True, slots=True)
class StageTime:
    """Where the time of a batch goes: seconds of one batch, and their share."""

    name: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Latency:
    timing: str
    rows: int
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """A job on one page."""

    now: int
    card: JobCard
    run: int
    restarts: int
    started: int | None
    ended: int | None
    host: str
    pid: int | None
    problem: str
    alarms: tuple[Alarm, ...]
    ledger: Ledger
    signs: tuple[Sign, ...]
    stages: tuple[StageTime, ...]
    limited_by: str
    latency: tuple[Latency, ...]
    watermark: int | None
    behind: float | None
    held_by: str | None
    idle: tuple[str, ...]
    retries: int
    budget: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers over time, thinned out to what a chart can show; null where nothing is known."""

    at: tuple[int, ...]
    values: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class Times:
    """How far event time had come, by the clock."""

    now: int
    clock: tuple[int, ...]
    watermark: tuple[int | None, ...]
    held_by: str | None
    idle: tuple[str, ...]
    ended: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """Elements that came so far behind the front of their stream, in milliseconds; the share that had come by then."""

    lower: float
    upper: float
    count: int
    complete: float


@dataclass(frozen=True, slots=True)
class Lateness:
    measured: int
    late: int
    read: int
    since: int | None
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    event_time: int | None
    watermark: int | None
    heard: int | None
    idle: bool
    finished: bool
    holds: bool
    """Whether it is the one that holds the watermark back."""
    lag_records: int | None
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class Partitions:
    now: int
    count: int
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Hot:
    step: str
    key: str
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class Skew:
    """How evenly a step's elements fall on its key groups: the fullest against the mean."""

    step: str
    groups: tuple[int, ...]
    fullest: float


@dataclass(frozen=True, slots=True)
class Keys:
    hot: tuple[Hot, ...]
    skew: tuple[Skew, ...]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A source, a keyed step or a sink; and how much of a batch's time goes to those of its kind."""

    id: str
    kind: Literal["source", "step", "sink"]
    label: str
    detail: str
    column: int
    share: float | None


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[str, str], ...]
    stages: tuple[StageTime, ...]
    busy: Mapping[str, float]
    limited_by: str
    plan: str


@dataclass(frozen=True, slots=True)
class StepState:
    name: str
    rows: int
    bytes: int | None
    watermark: int | None
    output_watermark: int | None
    read: int
    late: int
    series: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    at: tuple[int, ...]
    steps: tuple[StepState, ...]


@dataclass(frozen=True, slots=True)
class Pane:
    id: int
    at: int
    batch: int
    key: str
    start: int | None
    until: int | None
    timing: str
    index: int
    is_last: bool
    retraction: bool
    said: str


@dataclass(frozen=True, slots=True)
class PaneWindow:
    start: int | None
    until: int | None
    panes: int
    late: int
    retractions: int


@dataclass(frozen=True, slots=True)
class PaneKey:
    key: str
    panes: int


@dataclass(frozen=True, slots=True)
class Panes:
    """Keys that were followed, the windows of the one that was chosen, and its panes in the order they were told."""

    keys: tuple[PaneKey, ...]
    windows: tuple[PaneWindow, ...]
    panes: tuple[Pane, ...]


@dataclass(frozen=True, slots=True)
class EventLine:
    at: int
    run: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Events:
    events: tuple[EventLine, ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter on one line."""

    id: str
    first_seen: int | None
    reason: str
    step: str
    source: str
    place: str
    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class Letters:
    available: bool
    """False where the job's letters cannot be asked for from here; `hint` says why."""
    can_redrive: bool
    hint: str
    total: int
    matching: int
    reasons: Mapping[str, int]
    letters: tuple[Letter, ...]


@dataclass(frozen=True, slots=True)
class LetterWhole:
    """All that is known of a letter, by field."""

    fields: Mapping[str, str]
    raw: str
    raw_is_text: bool


@dataclass(frozen=True, slots=True)
class RedriveAsk:
    letters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Redriven:
    sent: tuple[str, ...]
    completed: tuple[str, ...]
    left: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SavepointLine:
    name: str
    at: int | None
    folder: str
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Savepoints:
    available: bool
    hint: str
    savepoints: tuple[SavepointLine, ...]


@dataclass(frozen=True, slots=True)
class Lineage:
    """Whose checkpoint it is, and what reads and writes it."""

    lineage: str
    fingerprint: str
    key_groups: int | None
    folder: str
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    runs: tuple[EventLine, ...]
