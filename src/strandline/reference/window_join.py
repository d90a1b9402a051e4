"""Join the rows of one key of two streams in windows: the oracle of the window join.

A windowed step that collects elements gives the firings. Each firing is joined as a whole, and so are the earlier
firings that it replaces; the accumulation mode decides which rows of both are emitted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from strandline.model.aggregates import Collect
from strandline.model.elements import Element
from strandline.model.joins import LEFT, RIGHT, How
from strandline.model.panes import Accumulation, Late, Pane
from strandline.model.window_join import WindowJoin
from strandline.reference.expressions import evaluate
from strandline.reference.state import KeyState
from strandline.reference.step import Passage, Stepped, step

_ELEMENT: Final = "element"

Identity = tuple[tuple[str, str, int] | None, tuple[str, str, int] | None]
"""The positions of the left and of the right row of a result; None for the side that it lacks."""


@dataclass(frozen=True, slots=True)
class Result:
    """A row of a firing: its identity, and its values."""

    identity: Identity
    values: Mapping[str, Any]


def window_join(
    ask: WindowJoin, key: Any, state: KeyState, elements: Sequence[Element], time: Passage, roles: Mapping[str, str]
) -> Stepped:
    """Play one batch of one key. `roles` has the side of inputs."""
    taken = [each for each in elements if not _is_null(key) or ask.pads(roles[each.input])]
    wrapped = [replace(each, columns={_ELEMENT: each}) for each in taken]
    done = step(ask.firings(_ELEMENT, Collect(_ELEMENT)), key, state, wrapped, time)
    judged = done.judged
    judged.filtered += len(elements) - len(taken)
    judged.late = [_unwrapped(each) for each in judged.late]
    panes: list[Pane] = []
    replaced: list[Pane] = []
    for pane in done.panes:
        if pane.retraction:
            replaced.append(pane)
        else:
            panes += _emitted(ask, pane, replaced, roles)
            replaced = []
    return replace(done, panes=tuple(panes))


def _is_null(key: Any) -> bool:
    return key is None or (isinstance(key, tuple) and None in key)


def _unwrapped(late: Late) -> Late:
    return replace(late, element=late.element.columns[_ELEMENT])


def _emitted(ask: WindowJoin, firing: Pane, replaced: Iterable[Pane], roles: Mapping[str, str]) -> Iterator[Pane]:
    """Return what a firing emits, given the last firings that it replaces."""
    now = _joined(ask, firing, roles)
    before = [(pane, _joined(ask, pane, roles)) for pane in replaced]
    if ask.accumulation is Accumulation.RETRACTING:
        known = {each.identity for each in now}
        stays = set[Identity]()
        for pane, rows in before:
            for row in rows:
                if pane.window == firing.window and row.identity in known:
                    stays.add(row.identity)
                else:
                    yield replace(pane, values=row.values)
    elif ask.accumulation is Accumulation.DISCARDING:
        stays = {row.identity for _, rows in before for row in rows}
    else:
        stays = set()
    for row in now:
        if row.identity not in stays:
            yield replace(firing, values=row.values)


def _joined(ask: WindowJoin, firing: Pane, roles: Mapping[str, str]) -> list[Result]:
    """Join all rows of a window."""
    rows: list[Element] = firing.values[_ELEMENT]
    left = [each for each in rows if roles[each.input] == LEFT]
    right = [each for each in rows if roles[each.input] == RIGHT]
    pairs = [(one, other) for one in left for other in right if _is_pair(ask, firing.key, one, other)]
    matched = {_position(each) for pair in pairs for each in pair}
    found: list[Result] = []
    if ask.emits_pairs:
        found += [
            Result((_position(one), _position(other)), {**_named(ask, one, LEFT), **_named(ask, other, RIGHT)})
            for one, other in pairs
        ]
    if ask.how is How.SEMI:
        found += [_alone(ask, each, LEFT) for each in left if _position(each) in matched]
    for role, side in ((LEFT, left), (RIGHT, right)):
        if ask.pads(role):
            found += [_alone(ask, each, role) for each in side if _position(each) not in matched]
    return found


def _is_pair(ask: WindowJoin, key: Any, left: Element, right: Element) -> bool:
    if _is_null(key):
        return False
    if ask.condition is None:
        return True
    return evaluate(ask.condition, {"": {**_named(ask, left, LEFT), **_named(ask, right, RIGHT)}}) is True


def _alone(ask: WindowJoin, row: Element, role: str) -> Result:
    place = _position(row)
    return Result((place, None) if role == LEFT else (None, place), _named(ask, row, role))


def _position(element: Element) -> tuple[str, str, int]:
    return (element.input, element.partition, element.offset)


def _named(ask: WindowJoin, element: Element, role: str) -> dict[str, Any]:
    """Return the columns of a row under their names in the result."""
    names = dict(ask.renamed) if role == RIGHT else {}
    return {names.get(name, name): value for name, value in element.columns.items()}
