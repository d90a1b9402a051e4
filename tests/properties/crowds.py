"""Generate crowds (histories of many keys), and compare the output of two players key by key."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from random import Random
from typing import Any, Final

from hypothesis import strategies as st

from strandline.errors import InvalidWatermark
from strandline.model.aggregates import (
    Aggregate,
    AnyTrue,
    ApproxCountDistinct,
    BitXor,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Quantile,
    StringAgg,
    Sum,
    TopK,
)
from strandline.model.elements import END, Element, TimeDomain
from strandline.model.panes import Accumulation, Emit, Emitted, Lateness, LateRows, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import DEFAULT, AfterCount, AfterWatermark, Never, Trigger
from strandline.model.watermarks import by_clock
from strandline.model.windows import Count as CountWindow
from strandline.model.windows import (
    Cumulating,
    Custom,
    GapColumn,
    Global,
    Session,
    Sliding,
    Touching,
    Tumbling,
    WindowKind,
)
from strandline.plan.stories.player_protocol import Player
from strandline.plan.stories.story_pipeline import StoryPipeline
from strandline.plan.stories.story_steps import Feed, Move
from tests.properties.histories import (
    AGGREGATES,
    ALL_TRIGGERS,
    EXTRAS,
    RULES,
    History,
    Played,
    Rules,
    crowded,
    play,
    seconds,
)

RICH: Final[tuple[tuple[str, Aggregate], ...]] = (
    ("n", Count()),
    ("total", Sum("v")),
    ("top", Max("v")),
    ("all", Collect("v")),
    ("given", Count("v")),
    ("least", Min("v")),
    ("average", Mean("v")),
    ("oldest", First("v")),
    ("newest", Last("v")),
    ("best", TopK("v", 2)),
    ("kinds", CountDistinct("v")),
    ("about", ApproxCountDistinct("v", 4)),
    ("middle", Quantile("v", 0.5)),
    ("some", AnyTrue("v")),
    ("bits", BitXor("v")),
    ("text", StringAgg("v")),
)
"""Aggregates of every state kind whose result is exact for every order of merging."""


def _window(chance: Random) -> WindowKind:
    """Draw a window; all kinds are equally likely."""
    whole, part = chance.randint(3, 12), chance.randint(1, 4)
    touching = chance.choice([*Touching])
    kinds: list[WindowKind] = [
        Tumbling(seconds(whole), seconds(part - 2)),
        Sliding(seconds(whole), seconds(part + 1)),
        Cumulating(seconds(part * chance.randint(1, 4)), seconds(part)),
        Session(seconds(part + 1), touching),
        Session(GapColumn("gap"), touching),
        Custom("from", "to"),
        Global(),
    ]
    return chance.choice(kinds)


def _step(trigger: Trigger, chance: Random) -> WindowedStep:
    """Draw all options of a step independently; Hypothesis tends to repeat choices."""
    if chance.random() < 0.15:
        every = chance.choice([None, 1, 2, 3, 5])
        window: WindowKind = CountWindow(chance.randint(1, 4), every)
        return WindowedStep(AGGREGATES, window, pane_timestamp=chance.choice([*PaneTimestamp]))
    window = _window(chance)
    allowed = chance.choice([seconds(0), seconds(6), seconds(15), None])
    evictor, ttl = chance.choice(EXTRAS)
    return WindowedStep(
        chance.choice([AGGREGATES, RICH]),
        window,
        trigger,
        chance.choice([*Accumulation]),
        Lateness(allowed, chance.choice([*LateRows])),
        pane_timestamp=chance.choice([*PaneTimestamp]),
        on_time_pane=chance.choice([*Emit]),
        final_pane=chance.choice([*Emit]),
        evictor=evictor,
        ttl=ttl if isinstance(window, Global) else None,
    )


def _sharing(step: WindowedStep, chance: Random) -> WindowedStep:
    """Return the step over overlapping windows that use shared slices."""
    part, offset = chance.randint(1, 3), seconds(chance.randint(-2, 2))
    windows: list[WindowKind] = [
        Sliding(seconds(part + chance.randint(1, 16)), seconds(part), offset),
        Cumulating(seconds(part * chance.randint(2, 8)), seconds(part), offset),
    ]
    triggers: list[Trigger] = [DEFAULT, AfterWatermark(), AfterWatermark(None, AfterCount(2)), Never()]
    window, trigger = chance.choice(windows), chance.choice(triggers)
    return replace(step, window=window, trigger=trigger, pane_timestamp=PaneTimestamp.END_OF_WINDOW, evictor=None)


class Crowd(History):
    """A history of many keys, too long for Hypothesis to print; `check` prints a reduced failing history."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"<a crowd of {len(self.elements)} elements in {len(self.moves)} moves>")


def crowds(keys: Sequence[Any], sharing: float = 0.2) -> st.SearchStrategy[History]:
    """Draw a pipeline and a history in which each of these keys has elements; some windows use shared slices."""

    def written(trigger: Trigger, rule: Rules, seed: int) -> History:
        chance = Random(f"{seed} {trigger} {rule}")
        step = _step(trigger, chance)
        if chance.random() < sharing and not isinstance(step.window, CountWindow | Global):
            step = _sharing(step, chance)
        if chance.random() < 0.1 and not isinstance(step.window, CountWindow):
            step, rule = replace(step, time=TimeDomain.PROCESSING), (by_clock(), ())
        history = crowded(step, rule, keys, chance)
        # A first batch without elements: the oracle knows its partitions before any batch, the kernel with its first.
        return Crowd(history.pipeline, (Feed(()), *_dressed(history.moves)))

    return st.builds(written, ALL_TRIGGERS, RULES, st.integers(0, 10**9))


def _dressed(moves: Sequence[Move]) -> list[Move]:
    """Add the columns of custom windows and gaps; leave some without a value, a time or a valid gap."""

    def dress(element: Element) -> Element:
        value, at = element.columns["v"], element.at.ms
        bounds = {"gap": 1000 * (value % 5), "from": at - 1000 * (value % 3), "to": at + 1000 * (value % 7)}
        values = {"v": value} if value else {}
        return replace(element, columns={**values, **bounds}, at=END if element.offset % 23 == 22 else element.at)

    return [Feed(tuple(map(dress, move.elements))) if isinstance(move, Feed) else move for move in moves]


def check(history: History, player_of: Callable[[StoryPipeline], Player]) -> None:
    """Check that a player agrees with the oracle for every key; reduce a failing history."""
    meant = play(history)
    assert meant.rows[-1] == 0, "the input has ended, and a window is held"
    told = play(history, player_of)
    if difference(told, meant) is None:
        assert told.rows[-1] == 0, "the input has ended, and something is held"
        return

    def is_wrong(smaller: History) -> bool:
        try:
            return difference(play(smaller, player_of), play(smaller)) is not None
        except InvalidWatermark:  # the reduction removed the move that introduced the idle partition
            return False

    small = cut_down(history, is_wrong)
    raise AssertionError(shown(small, difference(play(small, player_of), play(small))))


def difference(told: Played, meant: Played) -> str | None:
    """Describe the first difference to the oracle: panes of a key in order, late elements, dead letters, watermarks."""
    for number, (mine, expected) in enumerate(zip(told.emitted, meant.emitted, strict=True)):
        for key in sorted({*_keys(mine), *_keys(expected)}, key=str):
            if _of(key, mine) != _of(key, expected):
                return f"move {number}, {key!r}: told {_of(key, mine)}, meant {_of(key, expected)}"
        # Windows in shared slices have no rows to count.
        for what in ("watermarks",) if told.uses_shared_slices else ("watermarks", "rows"):
            one, other = getattr(told, what)[number], getattr(meant, what)[number]
            if one != other:
                return f"move {number}, {what}: told {one}, meant {other}"
    return None


def shown(history: History, said: str | None) -> str:
    """Format a failure: the difference, the pipeline, and one line per move."""
    moves = [f"  {number}: {move}" for number, move in enumerate(history.moves)]
    return "\n".join([str(said), str(history.pipeline), *moves])


def _keys(emitted: Emitted) -> set[Any]:
    told = {*(pane.key for pane in emitted.panes), *(row.element.key for row in emitted.late)}
    return told | {letter.columns.get("key") for letter in emitted.dead}


def _of(key: Any, emitted: Emitted) -> tuple[Any, ...]:
    """Return the panes of a key in order, and its late elements and dead letters in any order."""
    late = [row for row in emitted.late if row.element.key == key]
    dead = [letter for letter in emitted.dead if letter.columns.get("key") == key]
    return (
        [pane for pane in emitted.panes if pane.key == key],
        sorted(late, key=lambda row: (row.element.partition, row.element.offset, str(row.window))),
        sorted(dead, key=lambda letter: (str(letter.reason), str(sorted(letter.columns.items(), key=str)))),
    )


def cut_down(history: History, is_wrong: Callable[[History], bool], tries: int = 150) -> History:
    """Reduce a failing history to one key and fewer moves, within a number of tries."""
    alone = (_of_atoms(history, [each for each in _atoms(history) if _concerns(each[1], key)]) for key in _all(history))
    small = next((each for each in alone if is_wrong(each)), history)
    atoms = _atoms(small)
    size = len(atoms) // 2
    while size:
        start = 0
        while start < len(atoms) and tries:
            fewer = [*atoms[:start], *atoms[start + size :]]
            tries -= 1
            if is_wrong(_of_atoms(history, fewer)):
                atoms = fewer
            else:
                start += size
        size //= 2
    return _of_atoms(history, atoms)


Atom = tuple[int, Move]
"""A move, or one element of a batch, with the position of the move."""


def _atoms(history: History) -> list[Atom]:
    return [
        (place, each)
        for place, move in enumerate(history.moves)
        for each in ([Feed((one,)) for one in move.elements] if isinstance(move, Feed) and move.elements else [move])
    ]


def _of_atoms(history: History, atoms: Sequence[Atom]) -> History:
    moves: list[Move] = []
    for _, group in groupby(atoms, key=lambda atom: atom[0]):
        parts = [move for _, move in group]
        fed = [one for part in parts if isinstance(part, Feed) for one in part.elements]
        moves.append(Feed(tuple(fed)) if isinstance(parts[0], Feed) else parts[0])
    return replace(history, moves=tuple(moves))


def _concerns(move: Move, key: Any) -> bool:
    return not isinstance(move, Feed) or all(element.key == key for element in move.elements)


def _all(history: History) -> list[Any]:
    return list(dict.fromkeys(element.key for element in history.elements))
