"""Generate pipelines into tables; play them with the job's own code and a real sink; compute their tables at once."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import polars as pl
from hypothesis import strategies as st

import strandline as sl
from strandline.errors import InvalidStep
from strandline.kernel.blocks.block import END, START
from strandline.kernel.output import Output
from strandline.model.elements import BEGINNING, Element, Timestamp
from strandline.model.elements import END as END_OF_TIME
from strandline.model.panes import Accumulation, LateRows
from strandline.model.triggers import Trigger
from strandline.model.windows import Global, Session, Tumbling, Window, WindowKind
from strandline.plan.compile import to_stages
from strandline.plan.pipeline import Keyed, Panes, Pipeline, read
from strandline.plan.stages import Stages
from strandline.ports.ledger import LedgerEntry
from strandline.reference.windows import covers, windows_of
from tests.plan.endpoints import NoRunner, PaperSource
from tests.properties.histories import ALL_TRIGGERS, AT_THE_END, FIXED, SESSIONS, lengths, seconds
from tests.spark.by_hand import Carrier

WATERMARK: Final = sl.bounded(seconds=2)
KEYS: Final = ("a", "b", "c")
LONG: Final = seconds(3_600)
"""More than any element is late."""
ID: Final = "id"

Row = Mapping[str, Any]
Event = tuple[str, int, int]
"""A key, a value, and a time in milliseconds."""


@dataclass(frozen=True, slots=True)
class Typed(PaperSource):
    """A source with a known schema."""

    partitions: tuple[str, ...] = ("",)
    columns: str = "key string, v long, id long, at timestamp"
    decoder: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a keyed step; None leaves the default."""

    window: WindowKind
    trigger: Trigger | None = None
    accumulation: Accumulation | None = None
    lateness: Any = None
    stamp: str | None = None

    def on(self, keyed: Keyed, rows: LateRows = LateRows.PER_WINDOW) -> Keyed:
        keyed = keyed.window(self.window).keep_for_ever()
        if self.trigger is not None:
            keyed = keyed.trigger(self.trigger, may_close=True)
        if self.accumulation is not None:
            keyed = keyed.accumulate(self.accumulation)
        if self.lateness is not None:
            keyed = keyed.allow_lateness(self.lateness, rows=rows)
        return keyed if self.stamp is None else keyed.stamp_panes(self.stamp)


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline of one or two keyed steps into a table, and the batches that it plays: a clock and events."""

    first: Settings
    second: Settings | None
    key: str
    """The key of the second step."""
    least: int | None
    """Rows are kept whose total is greater; None keeps all."""
    sink: Mapping[str, Any]
    batches: tuple[tuple[int, tuple[Event, ...]], ...]
    whole: bool
    """Whether the second step reads rows as whole results, and not only sums them."""

    def pipeline(self, path: Path) -> Pipeline:
        elements = read(Typed(), NoRunner()).event_time("at", WATERMARK)
        panes = self.first.on(elements.key_by("key")).aggregate(
            n=sl.count(), total=sl.sum("v"), top=sl.max("v"), ids=sl.count_distinct(ID)
        )
        panes = self._kept(panes)
        return (panes if self.second is None else self._again(panes)).write(sl.sqlite(path, table="t", **self.sink))

    def _kept(self, panes: Panes) -> Panes:
        return panes if self.least is None else panes.where(pl.col("total") > self.least)

    def _again(self, panes: Panes) -> Panes:
        assert self.second is not None
        keyed = self.second.on(panes.key_by(self.key))
        if self.whole:
            return keyed.aggregate(n=sl.count(), total=sl.sum("total"), top=sl.max("total"))
        return keyed.aggregate(n=sl.sum("n"), total=sl.sum("total"), top=sl.max("top"))


SHAPES: Final[Sequence[Mapping[str, Any]]] = (
    {"mode": "upsert"}, {"mode": "upsert"}, {"mode": "append"}, {"key": ["KEY"]}, {"key": ["KEY", "window_start"]},
)  # fmt: skip


def make_case(
    first: Settings,
    second: Settings | None,
    key: str,
    least: int | None,
    shape: Mapping[str, Any],
    whole: bool,
    seed: int,
) -> Case:
    if isinstance(first.window, Session):
        # Without lateness, where a session ends depends on the watermark and not on the elements alone.
        first = replace(first, lateness=LONG)
    if second is not None:
        # The time of a pane is then that of its window, and not that of the elements which it has seen so far.
        first = replace(first, stamp=None)
        if isinstance(first.window, Global):
            first = replace(first, window=Tumbling(seconds(7)))
    own = "key" if second is None else key
    sink = {name: [own if each == "KEY" else each for each in value] if name == "key" else value
            for name, value in shape.items()}  # fmt: skip
    chance, clock, at, batches = Random(seed), 0, 0, []
    for _ in range(chance.randrange(3, 9)):
        clock, at = clock + chance.randrange(5_000), at + chance.randrange(12_000)
        many = chance.randrange(9)
        events = [(chance.choice(KEYS), chance.randrange(-2, 9), at - chance.randrange(14_000)) for _ in range(many)]
        batches.append((clock, tuple(events)))
    return Case(first, second, key, least, sink, tuple(batches), whole)


LATENESS: Final = st.sampled_from([seconds(0), seconds(4), seconds(15), LONG])
FIRST: Final = st.builds(
    Settings,
    st.one_of(FIXED, SESSIONS),
    st.none() | ALL_TRIGGERS | AT_THE_END,
    st.sampled_from([None, *Accumulation]),
    LATENESS,  # always set, so that late output names every window that refuses an element
    st.sampled_from([None, None, None, "earliest", "latest"]),
)
SECOND: Final = st.builds(
    Settings,
    st.builds(Tumbling, lengths(4, 20)) | FIXED,
    st.none() | AT_THE_END,
    st.sampled_from([None, None, *Accumulation]),
    st.none() | LATENESS,
)
CASES: Final = st.builds(
    make_case,
    FIRST,
    st.none() | SECOND,
    st.sampled_from(["key", "window_start", "n"]),
    st.sampled_from([None, None, None, 3]),
    st.sampled_from(SHAPES),
    st.booleans(),
    st.integers(0, 10**9),
)


def stages_of(case: Case, path: Path) -> Stages | None:
    """Return the stages of a pipeline; None if the planner refuses it."""
    try:
        return to_stages(case.pipeline(path).root, groups=2)
    except InvalidStep:
        return None


@dataclass(frozen=True, slots=True)
class Played:
    """The table that a reader sees at the end, and late rows of each step."""

    table: list[Row]
    late: tuple[Row, ...]
    late_panes: tuple[Row, ...]


def play(case: Case, stages: Stages, path: Path) -> Played:
    """Play a job with its own code, up to a drain, into its real sink."""
    carrier, late, identity = Carrier(stages), list[Row](), 0
    sink: Any = stages.outputs[0].sink
    opened = sink.open(stages.outputs[0])
    epoch = opened.claim("mine")
    for number, (clock, events) in enumerate([*case.batches, (10**6, ())]):
        rows = [(key, v, identity + place, at) for place, (key, v, at) in enumerate(events)]
        identity += len(events)
        schema = {"key": pl.String, "v": pl.Int64, "id": pl.Int64, "at": pl.Int64}
        frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
            pl.from_epoch("at", time_unit="ms").cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
        )
        (output,) = carrier.carry_frames({0: [frame]}, clock, drain=number == len(case.batches))
        late += [] if output.late is None else output.late.to_dicts()
        opened.commit(_without_late(output), LedgerEntry("mine", epoch, number, f"{number}"))
    opened.close()
    elements, panes = ([row for row in late if (row.get("v") is not None) is first] for first in (True, False))
    return Played([*_read(path, "t")], tuple(elements), tuple(panes))


def _without_late(output: Output) -> Output:
    return replace(output, late=None)


def _read(path: Path, table: str) -> Iterator[Row]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        known = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        shown = f"{table}_now" if f"{table}_now" in known else table
        for row in connection.execute(f"SELECT * FROM {shown}") if shown in known else ():
            yield dict(row)


Identity = tuple[Any, int, int]
Result = tuple[int, int | None, int | None]
Table = dict[Identity, Result]


def read_table(case: Case, played: Played, *, in_parts: bool) -> Table:
    """Return the table by key and window, as a reader of this sink sees it; rows that are parts are added up."""
    own = "key" if case.second is None else case.key
    table: Table = {}
    for row in played.table:
        # Strandline's column has a trailing _ where a column of the pipeline has its name.
        start, end = (row.get(f"{name}_", row[name]) for name in ("window_start", "window_end"))
        identity = (row[own], _ms(start), _ms(end))
        result = (row["n"], row["total"], row["top"])
        assert in_parts or identity not in table, f"two rows of {identity}"
        table[identity] = _combined(table[identity], result) if identity in table else result
    return table


def _combined(one: Result, other: Result) -> Result:
    (n, total, top), (more, rest, most) = one, other
    tops = [each for each in (top, most) if each is not None]
    return n + more, (total or 0) + (rest or 0), max(tops, default=None)


def _ms(text: str) -> int:
    if text in ("-infinity", "infinity"):
        return BEGINNING.ms if text == "-infinity" else END_OF_TIME.ms
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def at_once(case: Case, late: Sequence[Row]) -> Table:
    """Compute the table from the elements that were not refused, all at once and without Strandline's kernel."""
    refused = {(row["id"], row[START], row[END]) for row in late}
    events = [event for _, events in case.batches for event in events]
    of_window: dict[Identity, list[int]] = {}
    for key in KEYS:
        mine = [
            Element(Timestamp(at), key, {"v": v, ID: number}) for number, (of, v, at) in enumerate(events) if of == key
        ]
        for element, windows in _assigned(case.first.window, mine):
            for window in windows:
                if (element.columns[ID], window.start.ms, window.end.ms) not in refused:
                    of_window.setdefault((key, window.start.ms, window.end.ms), []).append(element.columns["v"])
    table: Table = {identity: (len(values), sum(values), max(values)) for identity, values in of_window.items()}
    if case.least is not None:
        table = {identity: result for identity, result in table.items() if (result[1] or 0) > case.least}
    if case.second is not None:
        table = _again(case, table)
    return _only_latest(case, table)


def _assigned(kind: WindowKind, elements: Sequence[Element]) -> Iterator[tuple[Element, Sequence[Window]]]:
    own = {element.columns[ID]: windows_of(element, kind) for element in elements}
    merged: Mapping[Window, Window] = {}
    if isinstance(kind, Session):
        merged = covers([window for windows in own.values() for window in windows], kind.touching)  # type: ignore[misc]
    for element in elements:
        yield element, [merged.get(window, window) for window in own[element.columns[ID]]]  # type: ignore[arg-type]


def _again(case: Case, before: Table) -> Table:
    assert case.second is not None
    groups: dict[Identity, list[Result]] = {}
    for (key, start, end), result in before.items():
        last = min(end - 1, END_OF_TIME.ms - 1)
        by: Callable[[], Any] = {"key": lambda key=key: key, "window_start": lambda start=start: _text(start),
                                 "n": lambda result=result: result[0]}[case.key]  # fmt: skip
        for _, windows in _assigned(case.second.window, [Element(Timestamp(last), key, {ID: 0})]):
            for window in windows:
                groups.setdefault((by(), window.start.ms, window.end.ms), []).append(result)
    return {
        identity: (
            len(rows) if case.whole else sum(n for n, _, _ in rows),
            sum(total or 0 for _, total, _ in rows),
            max((total if case.whole else top) or 0 for _, total, top in rows),
        )
        for identity, rows in groups.items()
    }


def _text(ms: int) -> str | None:
    """Return an instant as a SQLite table holds it; an end of time is null for operations."""
    if ms == BEGINNING.ms:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _only_latest(case: Case, table: Table) -> Table:
    """Return the rows of the latest windows, where the window is not part of the table's key."""
    key = case.sink.get("key")
    if key is None or "window_start" in key[1:]:
        return table
    latest: Table = {}
    for identity in sorted(table, key=lambda each: (each[2], each[1])):
        latest = {other: result for other, result in latest.items() if other[0] != identity[0]}
        latest[identity] = table[identity]
    return latest


def has_parts(stages: Stages) -> bool:
    return not stages.outputs[0].has_latest_view
