"""Generate pipelines and histories for players, small enough to read when one fails."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

from hypothesis import strategies as st

from strandline.kernel.window.shared_slices import uses_shared_slices
from strandline.model.aggregates import Collect, Count, Max, Sum
from strandline.model.elements import Duration, Element, TimeDomain, Timestamp
from strandline.model.evictors import Evictor, KeepDelta, KeepLast, KeepWithin, Moment
from strandline.model.expressions import expression
from strandline.model.panes import Accumulation, Emit, Emitted, Lateness, LateRows, Pane, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import (
    DEFAULT,
    AfterCount,
    AfterEventTime,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    FirstOf,
    InSequence,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    When,
    may_finish,
)
from strandline.model.watermarks import (
    BY_HAND,
    Bounded,
    FromSource,
    FutureBound,
    Inputs,
    OnReturn,
    Percentile,
    Watermark,
)
from strandline.model.windows import Cumulating, Global, Session, Sliding, Touching, Tumbling, Window, WindowKind
from strandline.plan.stories.player_protocol import Player
from strandline.plan.stories.story_pipeline import StoryPipeline, one_operator
from strandline.plan.stories.story_steps import (
    Drain,
    FallIdle,
    Feed,
    Finish,
    Move,
    MoveClock,
    MoveWatermark,
    Restart,
    ReturnActive,
)
from strandline.reference.player import ReferencePlayer

NAMES = ("p0", "p1")


@dataclass(frozen=True)
class History:
    """A pipeline and its moves; the input always ends."""

    pipeline: StoryPipeline
    moves: tuple[Move, ...]

    def under(self, **changes: Any) -> "History":
        """Return the same history with changes to the step."""
        return self.over(replace(self.pipeline.step, **changes))

    def over(self, step: WindowedStep) -> "History":
        """Return the same history over another step."""
        given = self.pipeline
        changed = one_operator(step, given.watermark, given.partitions, given.fires_per_element)
        return replace(self, pipeline=changed)

    @property
    def elements(self) -> list[Element]:
        return [element for move in self.moves if isinstance(move, Feed) for element in move.elements]


@dataclass(frozen=True)
class Played:
    """The output of each move, the watermarks and state rows after it, and the player at the end."""

    emitted: tuple[Emitted, ...]
    watermarks: tuple[tuple[Timestamp, Timestamp], ...]
    rows: tuple[int, ...]
    player: Any
    uses_shared_slices: bool = False
    """Whether windows use shared slices, on players that support them."""

    @property
    def panes(self) -> list[Pane]:
        return [pane for each in self.emitted for pane in each.panes]

    @property
    def told(self) -> list[Pane]:
        """Return the panes that are not retractions."""
        return [pane for pane in self.panes if not pane.retraction]


def on_reference(pipeline: StoryPipeline) -> ReferencePlayer:
    return ReferencePlayer(
        pipeline.step,
        pipeline.watermark,
        partitions=pipeline.partitions,
        fires_per_element=pipeline.fires_per_element,
    )


def play(history: History, player_of: Callable[[StoryPipeline], Player] = on_reference) -> Played:
    """Play a history to its end."""
    player = player_of(history.pipeline)
    emitted, watermarks, rows = [], [], []
    for move in history.moves:
        match move:
            case Feed(elements):
                emitted.append(player.feed(elements))
            case MoveWatermark(to, of):
                emitted.append(player.move_watermark(to, of))
            case MoveClock(to):
                emitted.append(player.move_clock(to))
            case FallIdle(name):
                emitted.append(player.fall_idle(name))
            case ReturnActive(name):
                emitted.append(player.return_active(name))
            case Finish(name):
                emitted.append(player.finish(name))
            case Drain():
                emitted.append(player.drain())
            case Restart():
                player = player.restart()
                emitted.append(Emitted())
        watermarks.append((player.watermark_of(), player.output_watermark_of()))
        rows.append(player.rows_of())
    return Played(tuple(emitted), tuple(watermarks), tuple(rows), player, uses_shared_slices(history.pipeline.step))


def seconds(number: int) -> Duration:
    return Duration(number * 1000)


def lengths(least: int, most: int) -> st.SearchStrategy[Duration]:
    return st.integers(least, most).map(seconds)


SESSIONS: st.SearchStrategy[WindowKind] = st.builds(Session, lengths(2, 6), st.sampled_from(Touching))
FIXED: st.SearchStrategy[WindowKind] = st.one_of(
    st.builds(Tumbling, lengths(3, 12), lengths(-2, 2)),
    st.builds(Sliding, lengths(3, 9), lengths(2, 5)),
    st.builds(
        lambda steps, step: Cumulating(seconds(steps * step), seconds(step)), st.integers(1, 4), st.integers(1, 4)
    ),
    st.just(Global()),
)
WINDOWS = st.one_of(FIXED, SESSIONS)
OVERLAPPING: st.SearchStrategy[WindowKind] = st.one_of(
    st.builds(Sliding, lengths(4, 20), lengths(1, 3), lengths(-2, 2)),
    st.builds(
        lambda steps, step, offset: Cumulating(seconds(steps * step), seconds(step), offset),
        st.integers(2, 8),
        st.integers(1, 2),
        lengths(-2, 2),
    ),
)
"""Overlapping windows."""

TIMED: st.SearchStrategy[Trigger] = st.one_of(
    st.just(AfterWatermark()),
    st.builds(AfterCount, st.integers(1, 4)),
    st.builds(AfterProcessingTime, lengths(0, 6), st.sampled_from([None, seconds(4)])),
    st.builds(AfterEventTime, lengths(1, 5)),
    st.just(Never()),
)
CONDITIONS: st.SearchStrategy[Trigger] = st.sampled_from(
    ["n >= 2", "total > 5", "last.total is None or total - last.total >= 4", "since >= 2 or total < 0", "top > 6"]
).map(lambda text: When(expression(text)))


def trees(leaves: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    """Draw triggers over these leaves, a few levels deep."""

    def deeper(parts: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
        several = st.lists(parts, min_size=1, max_size=3).map(tuple)
        return st.one_of(
            st.builds(Repeatedly, parts),
            st.builds(AfterWatermark, st.none() | parts, st.none() | parts),
            st.builds(FirstOf, several),
            st.builds(AllOf, several),
            st.builds(InSequence, several),
            st.builds(OrFinally, parts, parts),
        )

    return st.recursive(leaves, deeper, max_leaves=4)


SPEAKING: st.SearchStrategy[Trigger] = st.sampled_from(
    [
        AfterWatermark(AfterCount(1), AfterCount(1)),
        Repeatedly(AfterCount(1)),
        AfterWatermark(AfterProcessingTime(seconds(2)), AfterCount(2)),
        DEFAULT,
    ]
)
"""Common triggers."""
TRIGGERS = st.one_of(SPEAKING, trees(TIMED))
ALL_TRIGGERS = st.one_of(SPEAKING, trees(TIMED | CONDITIONS))
AT_THE_END: st.SearchStrategy[Trigger] = st.one_of(
    st.just(DEFAULT),
    st.just(AfterWatermark()),
    st.builds(lambda late: AfterWatermark(None, late), trees(TIMED | CONDITIONS)),
    st.builds(lambda late: Repeatedly(AfterWatermark(None, late)), st.none() | TIMED),
    st.just(Never()),
)
"""Triggers that never fire before the watermark passes the end of a window."""
ENDLESS = TRIGGERS.map(lambda trigger: Repeatedly(trigger) if may_finish(trigger) else trigger)
"""Triggers that never close a window before it expires."""

AGGREGATES = (("n", Count()), ("total", Sum("v")), ("top", Max("v")), ("all", Collect("v")))


def steps(
    *,
    windows: st.SearchStrategy[WindowKind] = WINDOWS,
    triggers: st.SearchStrategy[Trigger] = TRIGGERS,
    allowed: Sequence[Duration | None] = (seconds(6), seconds(0), seconds(15), None),
    extras: bool = False,
) -> st.SearchStrategy[WindowedStep]:
    """Draw steps over these windows and triggers with all options; extras are evictors and TTL."""
    choices = product(
        reversed(Accumulation), allowed, LateRows, PaneTimestamp, Emit, Emit, EXTRAS if extras else [(None, None)]
    )

    def asked(window: WindowKind, trigger: Trigger, choice: tuple[Any, ...]) -> WindowedStep:
        accumulation, lateness, rows, timestamp, on_time, final, (evictor, ttl) = choice
        how = (accumulation, Lateness(lateness, rows), TimeDomain.EVENT, timestamp, on_time, final, evictor)
        return WindowedStep(AGGREGATES, window, trigger, *how, ttl if isinstance(window, Global) else None)

    return st.builds(asked, windows, triggers, st.sampled_from([*choices]))


EXTRAS: tuple[tuple[Evictor | None, Duration | None], ...] = (
    (None, None),
    (None, seconds(5)),
    (KeepLast(2), None),
    (KeepLast(1, Moment.AFTER), seconds(9)),
    (KeepWithin(seconds(4)), None),
    (KeepDelta(expression("last.v - v"), 3), None),
)


ANY_STEP = steps()
SHARING = steps(windows=OVERLAPPING, triggers=AT_THE_END).map(
    lambda step: replace(step, pane_timestamp=PaneTimestamp.END_OF_WINDOW)
)
"""Steps that use shared slices."""

Rules = tuple[Watermark | Inputs, tuple[str, ...]]
"""A watermark rule and the initial partitions."""
RULES: st.SearchStrategy[Rules] = st.one_of(
    st.just((BY_HAND, ())),
    st.just((BY_HAND, ())),
    st.tuples(
        st.builds(
            Watermark,
            st.one_of(
                st.builds(Bounded, lengths(0, 4)),
                st.builds(
                    Percentile,
                    st.sampled_from([0.5, 0.9, 1.0]),
                    lengths(2, 20),
                    first=lengths(0, 3),
                    enough=st.integers(1, 4),
                ),
            ),
            idle=st.sampled_from([None, seconds(5)]),
            future=st.none() | st.builds(FutureBound, lengths(4, 30), st.booleans()),
            on_return=st.sampled_from(OnReturn),
        ),
        st.sampled_from([(), NAMES]),
    ),
    st.tuples(st.builds(Watermark, st.just(FromSource()), idle=st.sampled_from([None, seconds(5)])), st.just(NAMES)),
    st.tuples(st.builds(Inputs, st.just(NAMES), st.sampled_from(OnReturn)), st.just(())),
)

EVENTS = st.lists(st.integers(0, 10 * 17 * 2 * 12 * 2 - 1), min_size=12, max_size=40)
"""Each number encodes one event of a history; `_Writer` decodes it."""


class _Writer:
    """Decode numbers into valid moves of a pipeline: time advances, and partition names are known.

    Event times are near the watermark, some behind it, so that elements reach windows in every phase.
    """

    def __init__(self, rule: Watermark | Inputs, partitions: Sequence[str], keys: Sequence[Any] = "ab") -> None:
        self._rule = rule
        self._keys = keys
        self._now = 8
        self._clock = 0
        self._offsets = Counter[str]()
        self._known = {*partitions, *(rule.names if isinstance(rule, Inputs) else ())}
        self._batch: list[Element] = []
        self.moves: list[Move] = []

    def write(self, event: int) -> None:
        """Decode an event: the last digit selects its kind, the other digits its parameters."""
        of, kind = divmod(event, 10)
        if kind <= 5:
            if kind >= 3:
                self.end_batch()
            self._batch.append(self._element(of))
            return
        move = self._clock_on(of) if kind == 6 else self._turn(of) if kind == 9 else self._watermark(of)
        if move is not None:
            self.end_batch()
            self.moves.append(move)

    def batch(self, of: Iterable[int]) -> None:
        """Write a whole batch."""
        self.end_batch()
        self._batch += map(self._element, of)
        self.end_batch()

    def end_batch(self) -> None:
        if self._batch:
            self.moves.append(Feed(tuple(self._batch)))
            self._batch = []

    def _element(self, of: int) -> Element:
        of, ahead = divmod(of, 17)
        of, key = divmod(of, len(self._keys))
        place, value = divmod(of, 12)
        name = "" if self._rule == BY_HAND else NAMES[place]
        self._known.add(name)
        self._offsets[name] += 1
        at = Timestamp((self._now + ahead - 8) * 1000)
        return Element(at, self._keys[key], {"v": value - 3}, name, self._offsets[name])

    def _clock_on(self, of: int) -> Move:
        self._clock += 1000 * (1 + of % 8)
        return MoveClock(Timestamp(self._clock))

    def _watermark(self, of: int) -> Move | None:
        by, place = divmod(of, 2)
        self._now += 1 + by % 6
        if isinstance(self._rule, Watermark) and not isinstance(self._rule.generator, FromSource):
            return None
        name = NAMES[place] if NAMES[place] in self._known else None
        return MoveWatermark(Timestamp(self._now * 1000 - 1), name)

    def _turn(self, of: int) -> Move | None:
        which, place = divmod(of, 2)
        if self._rule == BY_HAND or NAMES[place] not in self._known:
            return None
        return (FallIdle, ReturnActive, FallIdle, ReturnActive, Finish)[which % 5](NAMES[place])


@st.composite
def histories(
    draw: st.DrawFn, step: st.SearchStrategy[WindowedStep] | None = None, *, by_hand: bool = False
) -> History:
    """Draw a pipeline and a history for it; `by_hand` means that only the history moves the watermark."""
    asked = draw(ANY_STEP if step is None else step)
    rule, partitions = (BY_HAND, ()) if by_hand else draw(RULES)
    writer = _Writer(rule, partitions)
    for event in draw(EVENTS):
        writer.write(event)
    writer.end_batch()
    return History(one_operator(asked, rule, partitions), (*writer.moves, Drain()))


def crowded(asked: WindowedStep, rule: Rules, keys: Sequence[Any], chance: Random) -> History:
    """Return a history in which many keys have elements of their own and share watermark and clock."""
    writer, everyone = _Writer(*rule, keys), chance.randrange(14)
    for turn in range(14):
        if turn == everyone:
            rest = [len(keys) * chance.randrange(24) for _ in keys]
            writer.batch(17 * (key + of) + chance.randrange(17) for key, of in enumerate(rest))
        elif chance.random() < 0.5:
            many = chance.randint(1, 2 * len(keys))
            writer.batch(chance.randrange(17 * len(keys) * 2 * 12) for _ in range(many))
        elif chance.random() < 0.2:
            writer.moves.append(Restart())
        else:
            writer.write(10 * chance.randrange(1000) + chance.choice((6, 7, 8, 9)))
    return History(one_operator(asked, *rule), (*writer.moves, Drain()))


Identity = tuple[Any, Window]


def by_identity(panes: Sequence[Pane]) -> dict[Identity, list[Pane]]:
    """Group panes by key and window, in order of emission."""
    found: dict[Identity, list[Pane]] = {}
    for pane in panes:
        found.setdefault((pane.key, pane.window), []).append(pane)
    return found


def final_table(panes: Sequence[Pane]) -> Mapping[Identity, Mapping[str, Any]]:
    """Return the final table of a sink that upserts by key and window and deletes on retraction."""
    table: dict[Identity, Mapping[str, Any]] = {}
    for pane in panes:
        if pane.retraction:
            del table[pane.key, pane.window]
        else:
            table[pane.key, pane.window] = {**pane.values, "all": sorted(pane.values["all"])}
    return table
