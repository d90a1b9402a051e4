"""Rows by key: what stands is written over what was there, and what is gone is taken away."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import polars as pl

from strandline.connectors.sql.dialect import Dialect
from strandline.formats.sink_columns import Told


@dataclass(frozen=True, slots=True)
class Upsert:
    """A table, the columns its rows are told apart by, and those of the window, where a row has one."""

    table: str
    key: tuple[str, ...]
    window: tuple[str, str] | None = None
    """Start and end."""

    def remove(self, database: Dialect, told: Told) -> None:
        """Takes rows away, each only where it tells of the same window."""
        match = dict.fromkeys((*self.key, *(self.window or ())))
        for part, by_index in _by_nulls(told, self.key):
            target, staged = database.quoted(self.table), database.stage(self.table, part.only(part.rows, match))
            same = _matching(database, self.table, tuple(match), by_index)
            with _finding(database, self.table, self.key, by_index):
                database.execute(f"DELETE FROM {target} WHERE EXISTS (SELECT 1 FROM {staged} AS s WHERE {same})")

    def put(self, database: Dialect, told: Told) -> None:
        """Writes rows over those with their keys, unless these tell of a later window; and adds the others."""
        for part, by_index in _by_nulls(told, self.key):
            staged = database.stage(self.table, part)
            same = _matching(database, self.table, self.key, by_index)
            with _finding(database, self.table, self.key, by_index):
                for statement in self._written(database, part.names, staged, same):
                    database.execute(statement)

    def _written(self, database: Dialect, columns: Sequence[str], staged: str, same: str) -> Iterator[str]:
        quoted, target, unless = database.quoted, database.quoted(self.table), self._unless(database)
        names = ", ".join(map(quoted, columns))
        values = ", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in columns if name not in self.key)
        if database.traits.merges:
            written = f"WHEN MATCHED{unless} THEN UPDATE SET {values} " if values else ""
            added = f"INSERT ({names}) VALUES ({', '.join(f's.{quoted(name)}' for name in columns)})"
            yield f"MERGE INTO {target} USING {staged} AS s ON {same} {written}WHEN NOT MATCHED THEN {added}"
            return
        if values:
            yield f"UPDATE {target} SET {values} FROM {staged} AS s WHERE {same}{unless}"
        known = f"EXISTS (SELECT 1 FROM {target} WHERE {same})"
        yield f"INSERT INTO {target} ({names}) SELECT {names} FROM {staged} AS s WHERE NOT {known}"

    def _unless(self, database: Dialect) -> str:
        """Where the window is not part of the key, the row of a later one stays."""
        if self.window is None or set(self.window) & set(self.key):
            return ""
        end = database.quoted(self.window[1])
        return f" AND s.{end} >= {database.quoted(self.table)}.{end}"


def _finding(database: Dialect, table: str, key: Sequence[str], by_index: bool) -> AbstractContextManager[object]:
    return database.finding(table, key) if by_index else nullcontext()


def _matching(database: Dialect, table: str, names: Sequence[str], by_index: bool) -> str:
    quoted = database.quoted
    operator = "=" if by_index else database.traits.same
    return " AND ".join(f"{quoted(table)}.{quoted(name)} {operator} s.{quoted(name)}" for name in names)


def _by_nulls(told: Told, key: Sequence[str]) -> list[tuple[Told, bool]]:
    """Rows that `=` finds, by an index; and those with a null in their key, which only a slower way finds.

    In the order of their keys: neighbours in the index are found, and added, together.
    """
    rows = told.rows.sort(key, maintain_order=True)
    null = rows.select(pl.any_horizontal(pl.col(name).is_null() for name in key)).to_series()
    parts = [(told.only(rows.filter(~null)), True), (told.only(rows.filter(null)), False)]
    return [(part, by_index) for part, by_index in parts if part.rows.height]
