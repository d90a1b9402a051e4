"""The kernel against the oracle: whatever both can play, they tell the same panes and refuse the same elements.

Generated histories are cut down to what the kernel plays by now; a word it learns is added to the strategies here.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.kernel.blocks import AT, END, OFFSET, PARTITION, START
from strandline.kernel.panes import FIRST, INDEX, LAST, NONSPECULATIVE, RETRACTION, TIMESTAMP, TIMING
from strandline.kernel.prepare import prepare
from strandline.kernel.state import read_index
from strandline.kernel.step import REASON, WATERMARK, Ask, Stepped, step
from strandline.kernel.watermarks import Control, Seen
from strandline.model.aggregates import Count, Max, Mean, Min, Sum
from strandline.model.elements import Duration, Element, Timestamp
from strandline.model.panes import Accumulation, Emit, Emitted, Late, Lateness, LateReason, Pane, Timing
from strandline.model.steps import WindowedStep
from strandline.model.triggers import (
    DEFAULT,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Never,
    Repeatedly,
    Trigger,
)
from strandline.model.watermarks import BY_HAND, Bounded, Inputs, Watermark
from strandline.model.windows import Tumbling, Window
from strandline.plan.acts import Drain, Feed, Finish, MoveClock, MoveWatermark
from strandline.plan.story import StoryPipeline
from tests.properties.histories import NAMES, History, histories, lengths, on_reference, seconds

EACH: Final = max(25, int(os.environ.get("STRANDLINE_HISTORIES", "1000")) // 40)

AGGREGATES = (
    ("n", Count()),
    ("given", Count("v")),
    ("total", Sum("v")),
    ("least", Min("v")),
    ("most", Max("v")),
    ("average", Mean("v")),
)
LEAVES: st.SearchStrategy[Trigger] = st.one_of(
    st.just(AfterWatermark()),
    st.builds(AfterCount, st.integers(1, 4)),
    st.builds(AfterProcessingTime, lengths(0, 6), st.sampled_from([None, seconds(4)]), lengths(-1, 3)),
    st.just(Never()),
)
TRIGGERS: st.SearchStrategy[Trigger] = st.one_of(
    st.sampled_from([DEFAULT, AfterWatermark(AfterCount(1), AfterCount(1)), Repeatedly(AfterCount(2))]),
    st.recursive(
        LEAVES,
        lambda parts: st.builds(Repeatedly, parts) | st.builds(AfterWatermark, st.none() | parts, st.none() | parts),
        max_leaves=4,
    ),
)
STEPS = st.builds(
    lambda window, trigger, how, allowed, on_time, final: WindowedStep(
        AGGREGATES, window, trigger, how, Lateness(allowed), on_time_pane=on_time, final_pane=final
    ),
    st.builds(Tumbling, lengths(3, 12), lengths(-2, 2)),
    TRIGGERS,
    st.sampled_from(Accumulation),
    st.sampled_from([seconds(0), seconds(6), seconds(15), None]),
    st.sampled_from(Emit),
    st.sampled_from(Emit),
)
RULES = st.builds(
    Watermark, st.builds(Bounded, lengths(0, 4)), idle=st.sampled_from([None, seconds(5)])
) | st.builds(
    lambda delay: Watermark(Bounded(delay)).future_bound(seconds(20)),
    lengths(0, 4),
)


def calm(test: Any) -> Any:
    """The same histories in every run, so that a failure can be looked at again."""
    return settings(
        max_examples=EACH,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )(test)


@dataclass
class KernelPlayer:
    """Key groups played by the kernel, each over bytes of its own; `combined` as prepare would with a known horizon."""

    pipeline: StoryPipeline
    combined: bool
    groups: int = 2
    clock: int = 0
    held: list[dict[str, bytes]] = field(init=False)
    fed: dict[tuple[str, int], Element] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held = [{} for _ in range(self.groups)]
        self.play(Control(0))

    @property
    def ask(self) -> Ask:
        rule = self.pipeline.watermark
        by_hand = isinstance(rule, Inputs)
        moved = Watermark(Bounded(Duration(0))) if isinstance(rule, Inputs) else rule
        return Ask(("key",), self.pipeline.step, moved, ("",) if by_hand else self.pipeline.partitions)

    @property
    def watermark(self) -> Timestamp:
        (watermark,) = {read_index(held).progress.watermark for held in self.held}
        return Timestamp(watermark)

    @property
    def rows(self) -> int:
        return sum(entry.rows for held in self.held for entry in read_index(held).slices.values())

    def feed(self, elements: Sequence[Element]) -> Emitted:
        self.fed |= {(element.partition, element.offset): element for element in elements}
        seen = [] if isinstance(self.pipeline.watermark, Inputs) else _seen(elements)
        return self.play(Control(self.clock, tuple(seen)), elements)

    def move_watermark(self, to: Timestamp) -> Emitted:
        """By hand: a row that counts one instant above where the watermark is to stand."""
        return self.play(Control(self.clock, (Seen("", 0, to.ms + 1),)))

    def move_clock(self, to: Timestamp) -> Emitted:
        self.clock = max(self.clock, to.ms)
        return self.play(Control(self.clock))

    def finish(self, name: str) -> Emitted:
        return self.play(Control(self.clock, (Seen(name, 0, None, finished=True),)))

    def drain(self) -> Emitted:
        return self.play(Control(self.clock, drain=True))

    def play(self, control: Control, elements: Sequence[Element] = ()) -> Emitted:
        horizon = self.watermark.ms if self.combined and all(self.held) else None
        blocks = prepare(_frame(elements), ["key"], self.pipeline.step, self.groups, horizon)
        emitted = Emitted()
        for group, held in enumerate(self.held):
            stepped = step(held, [blocks[group]] if group in blocks else [], [control], self.ask)
            for place, data in stepped.writes.items():
                if data is None:
                    held.pop(place, None)
                else:
                    held[place] = data
            emitted += Emitted(tuple(_panes(stepped)), tuple(self._late(stepped)))
        return emitted

    def _late(self, stepped: Stepped) -> list[Late]:
        rows = [] if stepped.late is None else stepped.late.iter_rows(named=True)
        return [
            Late(
                self.fed[row[PARTITION], row[OFFSET]],
                LateReason(row[REASON]),
                Window(Timestamp(row[START]), Timestamp(row[END])),
                Timestamp(row[WATERMARK]),
            )
            for row in rows
        ]


def _seen(elements: Sequence[Element]) -> list[Seen]:
    times: dict[str, list[int]] = {}
    for element in elements:
        times.setdefault(element.partition, []).append(element.at.ms)
    return [Seen(name, len(found), max(found)) for name, found in times.items()]


def _frame(elements: Sequence[Element]) -> pl.DataFrame:
    rows = [(each.key, each.columns["v"], each.at.ms, each.partition, each.offset) for each in elements]
    schema = {"key": pl.String, "v": pl.Int64, AT: pl.Int64, PARTITION: pl.String, OFFSET: pl.Int64}
    return pl.DataFrame(rows, schema, orient="row")


def _panes(stepped: Stepped) -> list[Pane]:
    rows = [] if stepped.panes is None else stepped.panes.iter_rows(named=True)
    return [
        Pane(
            key=row["key"],
            window=Window(Timestamp(row[START]), Timestamp(row[END])),
            values={name: row[name] for name, _ in AGGREGATES},
            timing=Timing(row[TIMING]),
            index=row[INDEX],
            nonspeculative_index=row[NONSPECULATIVE],
            is_first=row[FIRST],
            is_last=row[LAST],
            timestamp=Timestamp(row[TIMESTAMP]),
            retraction=row[RETRACTION],
        )
        for row in rows
    ]


def in_order(emitted: Emitted) -> Emitted:
    """Order is free between keys and windows, and between late elements."""
    panes = sorted(emitted.panes, key=lambda pane: (str(pane.key), pane.window))
    late = sorted(emitted.late, key=lambda row: (row.element.partition, row.element.offset))
    return Emitted(tuple(panes), tuple(late), emitted.dead)


def with_nulls(history: History) -> History:
    """Some elements have no value, and some no key."""

    def thinned(element: Element) -> Element:
        value = element.columns["v"]
        return replace(element, columns={"v": None if value == 0 else value}, key=None if value == 5 else element.key)

    moves = [Feed(tuple(map(thinned, move.elements))) if isinstance(move, Feed) else move for move in history.moves]
    return replace(history, moves=tuple(moves))


def agree(history: History, *, combined: bool) -> None:
    oracle, kernel = on_reference(history.pipeline), KernelPlayer(history.pipeline, combined)
    for move in history.moves:
        match move:
            case Feed(elements):
                meant, told = oracle.feed(elements), kernel.feed(elements)
            case MoveWatermark(to):
                meant, told = oracle.move_watermark(to), kernel.move_watermark(to)
            case MoveClock(to):
                meant, told = oracle.move_clock(to), kernel.move_clock(to)
            case Finish(name):
                meant, told = oracle.finish(name), kernel.finish(name)
            case Drain():
                meant, told = oracle.drain(), kernel.drain()
            case _:
                continue
        assert in_order(told) == in_order(meant), move
        assert kernel.watermark == oracle.watermark, move
        assert kernel.rows == oracle.rows, move
    assert kernel.rows == 0


@calm
@given(history=histories(STEPS, by_hand=True).map(with_nulls), combined=st.booleans())
def test_the_kernel_tells_what_the_oracle_tells(history: History, combined: bool) -> None:
    assert history.pipeline.watermark == BY_HAND
    agree(history, combined=combined)


@calm
@given(
    history=histories(STEPS),
    rule=RULES,
    partitions=st.sampled_from([(), NAMES]),
    combined=st.booleans(),
)
def test_the_kernel_finds_the_watermark_that_the_oracle_finds(
    history: History, rule: Watermark, partitions: tuple[str, ...], combined: bool
) -> None:
    """Partitions fall idle by the clock and end; those that only a story can move by hand stay out."""
    pipeline = replace(history.pipeline, watermark=rule, partitions=partitions)
    known: set[str] = set(partitions)
    moves = []
    for move in history.moves:
        if isinstance(move, Feed):
            named = [replace(each, partition=each.partition or NAMES[0]) for each in move.elements]
            known |= {each.partition for each in named}
            moves.append(Feed(tuple(named)))
        elif isinstance(move, MoveClock | Drain) or (isinstance(move, Finish) and move.name in known):
            moves.append(move)
    agree(with_nulls(History(pipeline, tuple(moves))), combined=combined)
