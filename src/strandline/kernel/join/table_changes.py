"""Compute the changes of a join of tables from the changes of its tables, without intermediate results.

Per key the result is the product of the rows of some tables: which ones follows from the tables that have a row. If
these stay the same, only combinations with a changed row are formed, each once: rows of the tables before it are
unchanged ones, of the tables after it all. Otherwise all rows of the key are retracted and the new ones inserted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from strandline.kernel.join.pairs import Longs, ranges
from strandline.kernel.join.table_rows import Flags
from strandline.model.table_join import TableJoin

_Chosen = dict[int, Longs]
"""Rows by table, one of each table for each row of the result."""


@dataclass(slots=True, eq=False)
class TableRows:
    """The rows of one table before and after a batch: the key and time of each, and when it is in the table."""

    keys: Longs
    times: Longs
    before: Flags
    after: Flags
    order: Longs
    """The rows by key."""

    @classmethod
    def of(cls, keys: Longs, times: Longs, before: Flags, after: Flags) -> "TableRows":
        return cls(keys, times, before, after, np.argsort(keys, kind="stable"))

    def by_key(self, which: Flags) -> Longs:
        """Return the marked rows in order of their keys."""
        return self.order[which[self.order]]

    def has_rows(self, which: Flags, keys: int) -> Flags:
        found: Flags = np.bincount(self.keys[which], minlength=keys) > 0
        return found


@dataclass(frozen=True, slots=True, eq=False)
class ResultChanges:
    """Rows of the result that a batch retracts and inserts: key, sign, time, and the rows they are made of."""

    keys: Longs
    signs: Longs
    times: Longs
    chosen: dict[int, Longs]
    """By table the number of a row, or -1 where its columns are null."""


def result_changes(definition: TableJoin, tables: Sequence[TableRows], keys: int) -> ResultChanges:
    """Return the changes of the result, retractions of a key before its insertions."""
    parts: list[tuple[int, _Chosen]] = []
    for was, now, which in _cases(definition, tables, keys):
        if was == now and was is not None:
            parts += [(-1, each) for each in _with_changes(tables, was, which, is_new=False)]
            parts += [(1, each) for each in _with_changes(tables, was, which, is_new=True)]
            continue
        if was is not None:
            parts.append((-1, _product(tables, {n: tables[n].before & which[tables[n].keys] for n in was}, was[0])))
        if now is not None:
            parts.append((1, _product(tables, {n: tables[n].after & which[tables[n].keys] for n in now}, now[0])))
    return _in_order(definition, tables, [part for part in parts if len(next(iter(part[1].values())))])


def _cases(
    definition: TableJoin, tables: Sequence[TableRows], keys: int
) -> Iterator[tuple[tuple[int, ...] | None, tuple[int, ...] | None, Flags]]:
    """Yield the keys that change, by the tables whose rows are combined before and after."""
    changed = np.zeros(keys, np.bool_)
    before, after = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
    for number, table in enumerate(tables):
        changed[table.keys[table.before != table.after]] = True
        before |= table.has_rows(table.before, keys).astype(np.int64) << number
        after |= table.has_rows(table.after, keys).astype(np.int64) << number
    many = len(tables)
    both = np.where(changed, (before << many) | after, -1)
    cases: dict[tuple[tuple[int, ...] | None, tuple[int, ...] | None], list[int]] = {}
    for each in np.unique(both[changed]).tolist():
        was = definition.combined([bool(each >> (many + number) & 1) for number in range(many)])
        now = definition.combined([bool(each >> number & 1) for number in range(many)])
        if was is not None or now is not None:
            cases.setdefault((was, now), []).append(each)
    for (was, now), masks in cases.items():
        yield was, now, np.isin(both, masks)


def _with_changes(
    tables: Sequence[TableRows], combined: Sequence[int], which: Flags, *, is_new: bool
) -> Iterator[_Chosen]:
    """Yield the combinations with a new row, or with a removed row."""
    for place, number in enumerate(combined):
        table = tables[number]
        delta = (table.after & ~table.before) if is_new else (table.before & ~table.after)
        delta = delta & which[table.keys]
        if not delta.any():
            continue
        rows = {number: delta}
        for other in combined[:place]:
            rows[other] = tables[other].before & tables[other].after
        for other in combined[place + 1 :]:
            rows[other] = tables[other].after if is_new else tables[other].before
        yield _product(tables, rows, number)


def _product(tables: Sequence[TableRows], which: dict[int, Flags], first: int) -> _Chosen:
    """Combine the marked rows of tables that have the same key, starting with one table."""
    found: _Chosen = {first: tables[first].by_key(which[first])}
    keys = tables[first].keys[found[first]]
    for number, marked in which.items():
        if number == first:
            continue
        rows = tables[number].by_key(marked)
        own = tables[number].keys[rows]
        begin = np.searchsorted(own, keys, "left")
        many = np.searchsorted(own, keys, "right") - begin
        found = {each: np.repeat(chosen, many) for each, chosen in found.items()}
        found[number] = rows[ranges(begin, many)]
        keys = np.repeat(keys, many)
    return found


def _in_order(
    definition: TableJoin, tables: Sequence[TableRows], parts: Sequence[tuple[int, _Chosen]]
) -> ResultChanges:
    """Concatenate changes, sorted by key, retractions first, then by time and rows."""
    none = np.zeros(0, np.int64)
    if not parts:
        return ResultChanges(none, none, none, dict.fromkeys(definition.shown, none))
    sizes = [len(next(iter(chosen.values()))) for _, chosen in parts]
    signs = np.repeat([sign for sign, _ in parts], sizes)
    columns: dict[int, Longs] = {}
    keys, times = np.zeros(len(signs), np.int64), np.full(len(signs), np.iinfo(np.int64).min)
    for number in definition.shown:
        pieces = [chosen.get(number, np.full(size, -1)) for (_, chosen), size in zip(parts, sizes, strict=True)]
        columns[number] = np.concatenate(pieces)
        has = columns[number] >= 0
        keys[has] = tables[number].keys[columns[number][has]]
        times[has] = np.maximum(times[has], tables[number].times[columns[number][has]])
    order = np.lexsort((*reversed([*columns.values()]), times, signs, keys))
    return ResultChanges(keys[order], signs[order], times[order], {n: each[order] for n, each in columns.items()})
