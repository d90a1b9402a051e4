"""Process one batch of a step: admit elements, process every key, and count what became of each element."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from strandline.model.deduplicate import Deduplicate
from strandline.model.elements import EPOCH, INSTANT, Element, Timestamp
from strandline.model.joins import IntervalJoin
from strandline.model.operators import Operator
from strandline.model.panes import DeadLetter, DeadReason, Emitted
from strandline.model.table_join import TableJoin
from strandline.model.temporal_join import TemporalJoin
from strandline.model.watermarks import Watermark
from strandline.model.window_join import WindowJoin
from strandline.model.windows import Count
from strandline.reference.counts import CountState, count
from strandline.reference.deduplicate import DeduplicateState, deduplicate
from strandline.reference.interval_join import JoinState, interval_join
from strandline.reference.lateness import Judged, dead_letter
from strandline.reference.state import KeyState
from strandline.reference.step import Passage, Stepped, step
from strandline.reference.table_join import TableJoinState, Times, table_join
from strandline.reference.temporal_join import TemporalState, temporal_join
from strandline.reference.values import Rank, rank
from strandline.reference.watermarks import Progress, Rule, is_dead_lettered
from strandline.reference.window_join import window_join

AnyState = KeyState | CountState | DeduplicateState | JoinState | TableJoinState | TemporalState

Keys = Mapping[Rank, tuple[Any, AnyState]]
"""The state of each key that has any; by rank, so that keys of all types are distinct and ordered."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of elements by outcome. Each is counted once: elements = contributed + late + dead + filtered."""

    elements: int = 0
    contributed: int = 0
    late: Mapping[str, int] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)
    filtered: int = 0

    @property
    def is_conserved(self) -> bool:
        counted = self.contributed + sum(self.late.values()) + sum(self.dead.values()) + self.filtered
        return self.elements == counted


@dataclass(frozen=True, slots=True)
class StepState:
    """All state that a step keeps between batches."""

    keys: Keys = field(default_factory=dict)
    progress: Progress = Progress()
    clock: Timestamp = EPOCH
    tally: Tally = Tally()

    @property
    def output_watermark(self) -> Timestamp:
        """Return the watermark that the step forwards: its own, but below the hold of every open window."""
        holds = [hold for _, state in self.keys.values() for hold in _holds(state)]
        return min([self.progress.watermark, *(hold - INSTANT for hold in holds)])


def _holds(state: AnyState) -> list[Timestamp]:
    if isinstance(state, KeyState):
        return [held.hold for held in state.windows.values() if held.hold is not None]
    return [state.hold] if isinstance(state, JoinState | TemporalState) and state.hold is not None else []


def play(  # noqa: PLR0913, PLR0917 - what a batch has
    ask: Operator,
    rule: Rule | None,
    before: StepState,
    elements: Sequence[Element],
    progress: Progress,
    clock: Timestamp,
    refused: Sequence[DeadLetter] = (),
    roles: Mapping[str, str] = MappingProxyType({}),
) -> tuple[StepState, Emitted]:
    """Process a batch: advance to its progress and clock, with its elements in order of arrival.

    `refused` are elements of the batch that were not admitted by the watermark of their own input. `roles` has the role
    of each input.
    """
    time = Passage(before.progress.watermark, progress.watermark, before.clock, clock)
    admitted, dead = admit(rule, elements, clock)
    keys, stepped = dict(before.keys), []
    for place, key, rows in _keys_to_process({} if time.stands_still else before.keys, admitted):
        turn = _process_key(ask, key, keys.get(place, (key, None))[1], rows, time, roles)
        stepped.append(turn)
        keys[place] = (key, turn.state)
    emitted = Emitted(
        tuple(pane for turn in stepped for pane in turn.panes),
        tuple(late for turn in stepped for late in turn.judged.late),
        (*refused, *dead, *(letter for turn in stepped for letter in turn.judged.dead)),
        tuple(row for turn in stepped for row in turn.rows),
    )
    tally = _tally(before.tally, len(elements) + len(refused), [turn.judged for turn in stepped], emitted.dead)
    left = {place: (key, state) for place, (key, state) in keys.items() if not state.is_empty}
    return StepState(left, progress, clock, tally), emitted


def admit(rule: Rule | None, elements: Iterable[Element], clock: Timestamp) -> tuple[list[Element], list[DeadLetter]]:
    """Dead-letter elements without a valid time, and, if so configured, elements too far in the future."""
    future = rule.future if isinstance(rule, Watermark) else None
    admitted, dead = [], []
    for element in elements:
        if element.at.is_end:
            dead.append(dead_letter(element, DeadReason.NO_EVENT_TIME))
        elif is_dead_lettered(future, element.at, clock):
            dead.append(dead_letter(element, DeadReason.FUTURE))
        else:
            admitted.append(element)
    return admitted, dead


def _keys_to_process(keys: Keys, elements: Iterable[Element]) -> list[tuple[Rank, Any, list[Element]]]:
    """Return the given keys and all keys with elements, in order, each with its elements."""
    turns: dict[Rank, tuple[Any, list[Element]]] = {place: (key, []) for place, (key, _) in keys.items()}
    for element in elements:
        turns.setdefault(rank(element.key), (element.key, []))[1].append(element)
    return [(place, *turns[place]) for place in sorted(turns)]


def _process_key(
    ask: Operator,
    key: Any,
    state: AnyState | None,
    rows: Sequence[Element],
    time: Passage,
    roles: Mapping[str, str],
) -> Stepped:
    if isinstance(ask, Deduplicate):
        known = state if isinstance(state, DeduplicateState) else DeduplicateState()
        done = deduplicate(ask, key, known, rows, time.watermark_before, time.watermark)
        reasons = [late.reason for late in done.late]
        judged = Judged(
            {}, len(rows), contributed=done.contributed, filtered=done.duplicates, refused=reasons, late=done.late
        )
        return Stepped(done.state, (), judged, tuple(done.rows))
    if isinstance(ask, IntervalJoin):
        waiting = state if isinstance(state, JoinState) else JoinState()
        joined = interval_join(ask, key, waiting, rows, time.watermark_before, time.watermark, roles)
        judged = Judged(
            {}, len(rows), contributed=joined.contributed, filtered=joined.filtered,
            refused=[late.reason for late in joined.late], late=joined.late,
        )  # fmt: skip
        return Stepped(joined.state, (), judged, tuple(joined.rows))
    if isinstance(ask, WindowJoin):
        return window_join(ask, key, state if isinstance(state, KeyState) else KeyState(), rows, time, roles)
    if isinstance(ask, TableJoin):
        tables = state if isinstance(state, TableJoinState) else TableJoinState()
        changed = table_join(
            ask, key, tables, rows, Times(time.watermark_before, time.watermark, time.clock), roles
        )  # fmt: skip
        judged = Judged(
            {}, len(rows), contributed=changed.contributed, filtered=changed.filtered,
            refused=[late.reason for late in changed.late], late=changed.late,
        )  # fmt: skip
        return Stepped(changed.state, (), judged, tuple(changed.rows))
    if isinstance(ask, TemporalJoin):
        known_versions = state if isinstance(state, TemporalState) else TemporalState()
        found = temporal_join(ask, key, known_versions, rows, time.watermark_before, time.watermark, roles)
        judged = Judged(
            {}, len(rows), contributed=found.contributed, filtered=found.filtered,
            refused=[late.reason for late in found.late], late=found.late,
        )  # fmt: skip
        return Stepped(found.state, (), judged, tuple(found.rows))
    if isinstance(ask.window, Count):
        before = state if isinstance(state, CountState) else CountState()
        after, panes = count(ask, ask.window, key, before, rows, time.watermark)
        return Stepped(after, panes, Judged({}, len(rows), contributed=len(rows)))
    return step(ask, key, state if isinstance(state, KeyState) else KeyState(), rows, time)


def _tally(before: Tally, elements: int, judged: Sequence[Judged], dead: Iterable[DeadLetter]) -> Tally:
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
