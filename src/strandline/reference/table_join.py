"""Join the current rows of one key of several tables: the oracle of the table join.

The whole result of the key is computed before and after a batch, table by table; the difference is emitted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from strandline.model.elements import Element, TimeDomain, Timestamp
from strandline.model.joins import How
from strandline.model.panes import Late, LateReason, Row
from strandline.model.table_join import TableJoin, table_role
from strandline.reference.values import Rank, position, rank

RETRACTION = "retraction"
"""Column of panes that tells their sign; it is not a part of a row."""

_Table = tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class TableJoinState:
    """The current rows of one key by table, and when each table has changed last."""

    tables: tuple[_Table, ...] = ()
    changed: tuple[Timestamp | None, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not any(self.tables)


@dataclass(slots=True)
class Changed:
    """What a batch of one key emits, and what became of its elements."""

    state: TableJoinState
    rows: list[Row] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    contributed: int = 0
    filtered: int = 0


@dataclass(frozen=True, slots=True)
class Times:
    """The watermark before and after a batch, and its clock."""

    before: Timestamp
    after: Timestamp
    clock: Timestamp


@dataclass(frozen=True, slots=True)
class _Combined:
    """A row of the result: its columns and the latest time of the rows that it is made of."""

    values: Mapping[str, Any]
    at: Timestamp


def table_join(
    ask: TableJoin,
    key: Any,
    state: TableJoinState,
    elements: Sequence[Element],
    times: Times,
    roles: Mapping[str, str],
) -> Changed:
    """Play one batch of one key. `roles` has the table of each input."""
    done = Changed(state)
    before = state.tables or ((),) * ask.tables
    last = list(state.changed or (None,) * ask.tables)
    numbers = {table_role(number): number for number in range(ask.tables)}
    changes: list[list[Element]] = [[] for _ in before]
    for element in sorted(elements, key=position):
        changes[numbers[roles[element.input]]].append(element)
    groups = [[number] for number in range(ask.tables)] if _is_null(key) else [[*range(ask.tables)]]
    after = list(before)
    for group in groups:
        if _is_null(key) and not _results(ask, _alone(before, group, always=True)):
            done.filtered += len(changes[group[0]])
            continue
        known = any(before[number] for number in group)
        for number in group:
            timely = [each for each in changes[number] if not _expired(ask, each, known, times, done)]
            after[number], applied = _applied(before[number], timely, times, done)
            done.contributed += len(applied)
            stamps = [each.at if ask.ttl_time is TimeDomain.EVENT else times.clock for each in applied]
            last[number] = max([each for each in (last[number], *stamps) if each is not None], default=None)
        _emit(ask, key, _alone(before, group), _alone(after, group), done)
        if _is_forgotten(ask, [last[number] for number in group], times):
            for number in group:
                after[number] = ()
        if not any(after[number] for number in group):
            for number in group:
                last[number] = None
    done.state = TableJoinState(tuple(after), tuple(last))
    return done


def _is_null(key: Any) -> bool:
    return key is None or (isinstance(key, tuple) and None in key)


def _alone(tables: Sequence[_Table], group: Sequence[int], *, always: bool = False) -> list[_Table]:
    """Return the tables of a group; the others are empty. With `always`, each of the group has a row."""
    row = Element(Timestamp(0), None)
    return [((row,) if always else tables[n]) if n in group else () for n in range(len(tables))]


def _expired(ask: TableJoin, element: Element, known: bool, times: Times, done: Changed) -> bool:
    """Refuse an insertion whose key may have been forgotten."""
    by_event_time = ask.ttl is not None and ask.ttl_time is TimeDomain.EVENT
    if known or element.retraction or not by_event_time or ask.ttl is None or element.at + ask.ttl > times.before:
        return False
    done.late.append(Late(element, LateReason.EXPIRED, None, times.before))
    return True


def _applied(table: _Table, changes: Sequence[Element], times: Times, done: Changed) -> tuple[_Table, list[Element]]:
    """Add the inserted rows to a table and remove the retracted ones; return the changes that were applied.

    A retraction removes an equal row of the same time, or else the latest equal row.
    """
    rows = [*table, *(each for each in changes if not each.retraction)]
    applied = [each for each in changes if not each.retraction]
    unmatched = []
    for retraction in (each for each in changes if each.retraction):
        equal = [n for n, row in enumerate(rows) if _rank(row) == _rank(retraction) and row.at == retraction.at]
        if equal:
            del rows[equal[-1]]
            applied.append(retraction)
        else:
            unmatched.append(retraction)
    for retraction in unmatched:
        equal = [n for n, row in enumerate(rows) if _rank(row) == _rank(retraction)]
        if equal:
            del rows[max(equal, key=lambda n: rows[n].at.ms)]
            applied.append(retraction)
        else:
            done.late.append(Late(retraction, LateReason.NO_SUCH_ROW, None, times.before))
    return tuple(rows), applied


def _rank(element: Element) -> Rank:
    return rank({name: each for name, each in element.columns.items() if name != RETRACTION and each is not None})


def _emit(ask: TableJoin, key: Any, before: Sequence[_Table], after: Sequence[_Table], done: Changed) -> None:
    was, now = (Counter(_by_rank(each)) for each in (_results(ask, before), _results(ask, after)))
    rows = {_key_of(row): row for row in (*_results(ask, before), *_results(ask, after))}
    for which, retraction in ((was - now, True), (now - was, False)):
        done.rows += [
            Row(key, rows[each].at, rows[each].values, retraction) for each in sorted(which) for _ in range(which[each])
        ]


def _by_rank(rows: Sequence[_Combined]) -> Iterator[Rank]:
    return (_key_of(row) for row in rows)


def _key_of(row: _Combined) -> Rank:
    return (row.at.ms, rank({name: each for name, each in row.values.items() if each is not None}))


def _results(ask: TableJoin, tables: Sequence[_Table]) -> list[_Combined]:
    """Join the tables one by one: the rows of each with the result of those before it."""
    found = _named(ask, 0, tables[0])
    for number, how in enumerate(ask.joins, 1):
        found = _joined(how, found, _named(ask, number, tables[number]))
    return found


def _joined(how: How, left: list[_Combined], right: list[_Combined]) -> list[_Combined]:
    pairs = [_Combined({**one.values, **other.values}, max(one.at, other.at)) for one in left for other in right]
    match how:
        case How.INNER:
            return pairs
        case How.LEFT:
            return pairs or left
        case How.RIGHT:
            return pairs or right
        case How.FULL:
            return pairs or left or right
        case How.SEMI:
            return left if right else []
        case How.ANTI:
            return [] if right else left
    assert_never(how)


def _named(ask: TableJoin, number: int, table: _Table) -> list[_Combined]:
    """Return the rows of a table with the names that their columns have in the result."""
    names = ask.names(table_role(number))
    return [
        _Combined({names.get(name, name): each for name, each in row.columns.items() if name != RETRACTION}, row.at)
        for row in table
    ]


def _is_forgotten(ask: TableJoin, changed: Sequence[Timestamp | None], times: Times) -> bool:
    last = max((each for each in changed if each is not None), default=None)
    if ask.ttl is None or last is None:
        return False
    if ask.ttl_time is TimeDomain.EVENT:
        return times.after >= last + ask.ttl
    return times.clock > last + ask.ttl
