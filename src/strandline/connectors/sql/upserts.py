"""Upsert rows by key: write current rows over earlier ones, and delete retracted rows."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import polars as pl

from strandline.connectors.sql.dialect import Dialect
from strandline.formats.sink_columns import SinkRows


@dataclass(frozen=True, slots=True)
class Upsert:
    """A table, its key columns, and its window columns if rows have a window."""

    table: str
    key: tuple[str, ...]
    window: tuple[str, str] | None = None
    """Start and end."""

    def remove(self, database: Dialect, rows: SinkRows) -> None:
        """Delete rows, each only where the table's row is of the same window."""
        match = dict.fromkeys((*self.key, *(self.window or ())))
        for part, by_index in _split_by_null_keys(rows, self.key):
            target, staged = database.quoted(self.table), database.stage(self.table, part.only(part.rows, match))
            same = _match_condition(database, self.table, tuple(match), by_index)
            with _lookup(database, self.table, self.key, by_index):
                database.execute(f"DELETE FROM {target} WHERE EXISTS (SELECT 1 FROM {staged} AS s WHERE {same})")

    def put(self, database: Dialect, rows: SinkRows) -> None:
        """Update rows by key, unless the table has a later window; insert the others."""
        for part, by_index in _split_by_null_keys(rows, self.key):
            staged = database.stage(self.table, part)
            same = _match_condition(database, self.table, self.key, by_index)
            with _lookup(database, self.table, self.key, by_index):
                for statement in self._statements(database, part.names, staged, same):
                    database.execute(statement)

    def _statements(self, database: Dialect, columns: Sequence[str], staged: str, same: str) -> Iterator[str]:
        quoted, target, unless = database.quoted, database.quoted(self.table), self._unless_later(database)
        names = ", ".join(map(quoted, columns))
        values = ", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in columns if name not in self.key)
        if database.traits.has_merge:
            written = f"WHEN MATCHED{unless} THEN UPDATE SET {values} " if values else ""
            added = f"INSERT ({names}) VALUES ({', '.join(f's.{quoted(name)}' for name in columns)})"
            yield f"MERGE INTO {target} USING {staged} AS s ON {same} {written}WHEN NOT MATCHED THEN {added}"
            return
        if values:
            yield f"UPDATE {target} SET {values} FROM {staged} AS s WHERE {same}{unless}"
        known = f"EXISTS (SELECT 1 FROM {target} WHERE {same})"
        yield f"INSERT INTO {target} ({names}) SELECT {names} FROM {staged} AS s WHERE NOT {known}"

    def _unless_later(self, database: Dialect) -> str:
        """Where the end of the window is not part of the key, keep the row of a later window."""
        if self.window is None or self.window[1] in self.key:
            return ""
        end = database.quoted(self.window[1])
        return f" AND s.{end} >= {database.quoted(self.table)}.{end}"


def _lookup(database: Dialect, table: str, key: Sequence[str], by_index: bool) -> AbstractContextManager[object]:
    return database.lookup(table, key) if by_index else nullcontext()


def _match_condition(database: Dialect, table: str, names: Sequence[str], by_index: bool) -> str:
    quoted = database.quoted
    operator = "=" if by_index else database.traits.same
    return " AND ".join(f"{quoted(table)}.{quoted(name)} {operator} s.{quoted(name)}" for name in names)


def _split_by_null_keys(rows: SinkRows, key: Sequence[str]) -> list[tuple[SinkRows, bool]]:
    """Split rows for lookup: those without a null key match by `=` and an index; those with one need a slower way.

    Rows are sorted by key, so that neighbours in the index are looked up, and inserted, together.
    """
    frame = rows.rows.sort(key, maintain_order=True)
    null = frame.select(pl.any_horizontal(pl.col(name).is_null() for name in key)).to_series()
    parts = [(rows.only(frame.filter(~null)), True), (rows.only(frame.filter(null)), False)]
    return [(part, by_index) for part, by_index in parts if part.rows.height]
