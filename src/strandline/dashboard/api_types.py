"""Define the API's values; its OpenAPI description is generated from them, so that the two cannot differ."""

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
    """One of the five golden metrics: its current value, its recent values, and its verdict."""

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
    """A verdict: what is judged, the displayed value, and why."""

    name: str
    value: str
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True)
class JobCard:
    """Summary of a job."""

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
    """Counts of elements and their outcomes over the last batches.

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
    """Time of one stage: seconds per batch, and the share."""

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
    """Overview of a job."""

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
    """Numbers over time, downsampled for a chart; null where unknown."""

    at: tuple[int, ...]
    values: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class Times:
    """The watermark over processing time."""

    now: int
    clock: tuple[int, ...]
    watermark: tuple[int | None, ...]
    held_by: str | None
    idle: tuple[str, ...]
    ended: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """Elements by how far they were behind the highest event time, in milliseconds, with the cumulative share."""

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
    """Whether it holds the watermark back."""
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
    """How evenly a step's elements are spread over its key groups: the fullest against the mean."""

    step: str
    groups: tuple[int, ...]
    fullest: float


@dataclass(frozen=True, slots=True)
class Keys:
    hot: tuple[Hot, ...]
    skew: tuple[Skew, ...]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A source, a keyed step or a sink, with the share of a batch's time that its kind takes."""

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
class JoinInput:
    """One side of a join: its rows of the last batches, and its state now."""

    step: str
    role: str
    accepted: int
    late: int
    stored: int
    ended: int
    unmatched: int | None
    match_rate: float | None
    oldest_unmatched: int | None


@dataclass(frozen=True, slots=True)
class State:
    at: tuple[int, ...]
    steps: tuple[StepState, ...]
    inputs: tuple[JoinInput, ...] = ()


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
    """Recorded keys, the windows of the selected key, and its panes in order."""

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
    """Summary of a dead letter."""

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
    """False if the job's letters cannot be read from here; `hint` says why."""
    can_redrive: bool
    hint: str
    total: int
    matching: int
    reasons: Mapping[str, int]
    letters: tuple[Letter, ...]


@dataclass(frozen=True, slots=True)
class LetterWhole:
    """All fields of a dead letter."""

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
    """A job's identity, sources, sinks and runs."""

    lineage: str
    fingerprint: str
    key_groups: int | None
    folder: str
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    runs: tuple[EventLine, ...]
