"""One batch of a step: elements are admitted, every key takes its turn, and what became of each element is counted."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.model.elements import EPOCH, INSTANT, Element, Timestamp
from strandline.model.panes import DeadLetter, DeadReason, Emitted
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import Watermark
from strandline.model.windows import Count
from strandline.reference.counts import CountState, count
from strandline.reference.lateness import Judged, dead_letter
from strandline.reference.state import KeyState
from strandline.reference.step import Passage, Stepped, step
from strandline.reference.values import Rank, rank
from strandline.reference.watermarks import Progress, Rule, is_put_aside

Keys = Mapping[Rank, tuple[Any, KeyState | CountState]]
"""Of each key that has any, its state; by rank, so that keys of all types are told apart and have an order."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the elements. Every one is counted once: in = contributed + late + dead + filtered."""

    elements: int = 0
    contributed: int = 0
    late: Mapping[str, int] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)
    filtered: int = 0

    @property
    def is_conserved(self) -> bool:
        told = self.contributed + sum(self.late.values()) + sum(self.dead.values()) + self.filtered
        return self.elements == told


@dataclass(frozen=True, slots=True)
class Kept:
    """All that a step keeps between batches."""

    keys: Keys = field(default_factory=dict)
    progress: Progress = Progress()
    clock: Timestamp = EPOCH
    tally: Tally = Tally()

    @property
    def output_watermark(self) -> Timestamp:
        """What the step forwards: its watermark, but below the hold of every open window."""
        states = [state for _, state in self.keys.values() if isinstance(state, KeyState)]
        holds = [held.hold for state in states for held in state.windows.values() if held.hold is not None]
        return min([self.progress.watermark, *(hold - INSTANT for hold in holds)])


def play(
    ask: WindowedStep, rule: Rule, kept: Kept, elements: Sequence[Element], progress: Progress, clock: Timestamp
) -> tuple[Kept, Emitted]:
    """Time passes from what was kept to the progress and clock of this batch; the elements come in order of arrival."""
    time = Passage(kept.progress.watermark, progress.watermark, kept.clock, clock)
    admitted, dead = _admit(rule, elements, clock)
    keys, stepped = dict(kept.keys), []
    for place, key, rows in _turns({} if time.stands_still else kept.keys, admitted):
        turn = _turn(ask, key, keys.get(place, (key, None))[1], rows, time)
        stepped.append(turn)
        keys[place] = (key, turn.state)
    emitted = Emitted(
        tuple(pane for turn in stepped for pane in turn.panes),
        tuple(late for turn in stepped for late in turn.judged.late),
        (*dead, *(letter for turn in stepped for letter in turn.judged.dead)),
    )
    tally = _counted(kept.tally, len(elements), [turn.judged for turn in stepped], emitted.dead)
    left = {place: (key, state) for place, (key, state) in keys.items() if not state.is_empty}
    return Kept(left, progress, clock, tally), emitted


def _admit(rule: Rule, elements: Iterable[Element], clock: Timestamp) -> tuple[list[Element], list[DeadLetter]]:
    """An element without a time inside time cannot be taken in, nor, if so asked, one from too far in the future."""
    future = rule.future if isinstance(rule, Watermark) else None
    admitted, dead = [], []
    for element in elements:
        if element.at.is_end:
            dead.append(dead_letter(element, DeadReason.NO_EVENT_TIME))
        elif is_put_aside(future, element.at, clock):
            dead.append(dead_letter(element, DeadReason.FUTURE))
        else:
            admitted.append(element)
    return admitted, dead


def _turns(keys: Keys, elements: Iterable[Element]) -> list[tuple[Rank, Any, list[Element]]]:
    """These keys and all that have elements, in order, each with its elements."""
    turns: dict[Rank, tuple[Any, list[Element]]] = {place: (key, []) for place, (key, _) in keys.items()}
    for element in elements:
        turns.setdefault(rank(element.key), (element.key, []))[1].append(element)
    return [(place, *turns[place]) for place in sorted(turns)]


def _turn(
    ask: WindowedStep, key: Any, state: KeyState | CountState | None, rows: Sequence[Element], time: Passage
) -> Stepped:
    if isinstance(ask.window, Count):
        before = state if isinstance(state, CountState) else CountState()
        after, panes = count(ask, ask.window, key, before, rows, time.watermark)
        return Stepped(after, panes, Judged({}, len(rows), contributed=len(rows)))
    return step(ask, key, state if isinstance(state, KeyState) else KeyState(), rows, time)


def _counted(before: Tally, elements: int, judged: Sequence[Judged], dead: Iterable[DeadLetter]) -> Tally:
    if not elements:
        return before
    refused = Counter(str(reason) for each in judged for reason in each.refused)
    return Tally(
        elements=before.elements + elements,
        contributed=before.contributed + sum(each.contributed for each in judged),
        late=dict(Counter(before.late) + refused),
        dead=dict(Counter(before.dead) + Counter(str(letter.reason) for letter in dead)),
        filtered=before.filtered + sum(each.filtered for each in judged),
    )
