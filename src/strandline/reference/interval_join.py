"""Join the rows of one key of two streams: the oracle of the interval join."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.model.elements import Element, Timestamp
from strandline.model.joins import LEFT, RIGHT, How, IntervalJoin
from strandline.model.panes import Late, LateReason, Row
from strandline.reference.expressions import evaluate


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A row that may still get a partner, and whether it had one."""

    element: Element
    matched: bool = False


@dataclass(frozen=True, slots=True)
class JoinState:
    """The waiting rows of one key, by side."""

    left: tuple[WaitingRow, ...] = ()
    right: tuple[WaitingRow, ...] = ()
    hold: Timestamp | None = None
    """The earliest time of a row that may be emitted without a partner."""

    @property
    def is_empty(self) -> bool:
        return not self.left and not self.right


@dataclass(slots=True)
class Joined:
    """What a batch of one key emits, and what became of its rows."""

    state: JoinState
    rows: list[Row] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    contributed: int = 0
    filtered: int = 0


def interval_join(
    ask: IntervalJoin,
    key: Any,
    state: JoinState,
    elements: Sequence[Element],
    before: Timestamp,
    after: Timestamp,
    roles: Mapping[str, str],
) -> Joined:
    """Play one batch of one key while the watermark moves from `before` to `after`. `roles` has the side of inputs."""
    done = Joined(state)
    timely: list[Element] = []
    for element in sorted(elements, key=_position):
        if element.at + ask.lateness <= before:
            done.late.append(Late(element, LateReason.BEHIND, None, before))
        elif _is_null(key):
            _without_key(ask, key, element, roles[element.input], done)
        else:
            done.contributed += 1
            timely.append(element)
    if _is_null(key):
        return done
    left = [*state.left, *(WaitingRow(each) for each in timely if roles[each.input] == LEFT)]
    right = [*state.right, *(WaitingRow(each) for each in timely if roles[each.input] == RIGHT)]
    pairs = [
        (one, other)
        for one in range(len(left))
        for other in range(len(right))
        if (one >= len(state.left) or other >= len(state.right))
        and _is_pair(ask, left[one].element, right[other].element)
    ]
    _emit_pairs(ask, key, left, right, pairs, done)
    left = _matched(left, {one for one, _ in pairs})
    right = _matched(right, {other for _, other in pairs})
    waiting = {role: _end(ask, role, key, rows, after, done) for role, rows in ((LEFT, left), (RIGHT, right))}
    done.state = JoinState(waiting[LEFT], waiting[RIGHT], _hold(ask, waiting))
    return done


def _position(element: Element) -> tuple[Timestamp, str, str, int]:
    return (element.at, element.input, element.partition, element.offset)


def _is_null(key: Any) -> bool:
    return key is None or (isinstance(key, tuple) and None in key)


def _without_key(ask: IntervalJoin, key: Any, element: Element, role: str, done: Joined) -> None:
    """A null key has no partner: the row is emitted at once if the join pads its side."""
    if ask.pads(role):
        done.contributed += 1
        done.rows.append(_row(key, element.at, _named(ask, element, role)))
    else:
        done.filtered += 1


def _is_pair(ask: IntervalJoin, left: Element, right: Element) -> bool:
    if not ask.is_pair(left.at, right.at):
        return False
    if ask.condition is None:
        return True
    return evaluate(ask.condition, {"": {**_named(ask, left, LEFT), **_named(ask, right, RIGHT)}}) is True


def _emit_pairs(
    ask: IntervalJoin,
    key: Any,
    left: Sequence[WaitingRow],
    right: Sequence[WaitingRow],
    pairs: Iterable[tuple[int, int]],
    done: Joined,
) -> None:
    first: dict[int, Timestamp] = {}
    for one, other in pairs:
        at = max(left[one].element.at, right[other].element.at)
        if ask.emits_pairs:
            values = {**_named(ask, left[one].element, LEFT), **_named(ask, right[other].element, RIGHT)}
            done.rows.append(_row(key, at, values))
        else:
            first[one] = min(at, first.get(one, at))
    if ask.how is How.SEMI:
        done.rows += [_row(key, at, _named(ask, left[one].element, LEFT)) for one, at in first.items()]


def _matched(rows: Sequence[WaitingRow], places: set[int]) -> list[WaitingRow]:
    return [replace(row, matched=row.matched or place in places) for place, row in enumerate(rows)]


def _end(
    ask: IntervalJoin, role: str, key: Any, rows: Sequence[WaitingRow], watermark: Timestamp, done: Joined
) -> tuple[WaitingRow, ...]:
    """Return the rows that may still get a partner; emit those that end without one if the join pads their side."""
    kept = []
    for row in rows:
        if row.matched and role == LEFT and not ask.emits_pairs:
            continue
        if row.element.at + ask.reach(role) + ask.lateness > watermark:
            kept.append(row)
        elif ask.pads(role) and not row.matched:
            done.rows.append(_row(key, row.element.at, _named(ask, row.element, role)))
    return tuple(kept)


def _hold(ask: IntervalJoin, waiting: Mapping[str, Sequence[WaitingRow]]) -> Timestamp | None:
    times = [row.element.at for role, rows in waiting.items() if ask.pads(role) for row in rows if not row.matched]
    return min(times, default=None)


def _named(ask: IntervalJoin, element: Element, role: str) -> dict[str, Any]:
    """Return the columns of a row under their names in the result."""
    names = dict(ask.renamed) if role == RIGHT else {}
    return {names.get(name, name): value for name, value in element.columns.items()}


def _row(key: Any, at: Timestamp, values: dict[str, Any]) -> Row:
    return Row(key, at, values)
