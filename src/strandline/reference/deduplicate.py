"""Deduplicate one key, one element at a time: the oracle of the deduplication operator."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.model.deduplicate import Deduplicate, Keep
from strandline.model.elements import Duration, Element, Timestamp
from strandline.model.panes import Late, LateReason, Row


@dataclass(frozen=True, slots=True)
class DeduplicateState:
    """What is kept of one key: the times of emitted elements, or the last element."""

    times: tuple[Timestamp, ...] = ()
    last: Element | None = None

    @property
    def is_empty(self) -> bool:
        return not self.times and self.last is None


@dataclass(slots=True)
class Deduplicated:
    """What a batch of one key emits, and what became of its elements."""

    state: DeduplicateState
    rows: list[Row] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    contributed: int = 0
    duplicates: int = 0


def deduplicate(
    ask: Deduplicate,
    key: Any,
    state: DeduplicateState,
    elements: Sequence[Element],
    before: Timestamp,
    after: Timestamp,
) -> Deduplicated:
    """Play one batch of one key while the watermark moves from `before` to `after`."""
    done = Deduplicated(state)
    timely = []
    for element in sorted(elements, key=lambda each: (each.at, each.input, each.partition, each.offset)):
        if ask.within is not None and element.at + ask.lateness <= before:
            done.late.append(Late(element, LateReason.EXPIRED, None, before))
        else:
            timely.append(element)
    if ask.keep is Keep.FIRST:
        _keep_first(ask, key, timely, done)
    else:
        _keep_last(ask, key, timely, done)
    done.state = _unexpired(ask, done.state, after)
    return done


def _keep_first(ask: Deduplicate, key: Any, elements: Sequence[Element], done: Deduplicated) -> None:
    times = list(done.state.times)
    for element in elements:
        if any(_is_near(ask, at, element.at) for at in times):
            done.duplicates += 1
            continue
        times.append(element.at)
        done.contributed += 1
        done.rows.append(_row(key, element))
    done.state = DeduplicateState(tuple(times))


def _keep_last(ask: Deduplicate, key: Any, elements: Sequence[Element], done: Deduplicated) -> None:
    last, is_emitted = done.state.last, True
    for element in elements:
        if last is not None and element.at < last.at:
            done.duplicates += 1
            continue
        if last is not None and _is_near(ask, last.at, element.at):
            if is_emitted:
                done.rows.append(_row(key, last, retraction=True))
            else:
                done.duplicates += 1
        elif last is not None and not is_emitted:
            done.rows.append(_row(key, last))
            done.contributed += 1
        last, is_emitted = element, False
    if last is not None and not is_emitted:
        done.rows.append(_row(key, last))
        done.contributed += 1
    done.state = DeduplicateState(last=last)


def _is_near(ask: Deduplicate, one: Timestamp, other: Timestamp) -> bool:
    return ask.within is None or abs(one.ms - other.ms) < ask.within.ms


def _row(key: Any, element: Element, *, retraction: bool = False) -> Row:
    return Row(key, element.at, element.columns, retraction)


def _unexpired(ask: Deduplicate, state: DeduplicateState, watermark: Timestamp) -> DeduplicateState:
    """Forget what no timely element can be a duplicate of."""
    if ask.within is None:
        return state
    kept = Duration(ask.within.ms + ask.lateness.ms)
    times = tuple(at for at in state.times if at + kept > watermark)
    last = state.last if state.last is not None and state.last.at + kept > watermark else None
    return DeduplicateState(times, last)
