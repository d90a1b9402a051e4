"""Compare a replayed version of a table with the live one, and switch readers to it.

Readers of `totals` use the view `totals_current`. It shows the live version first and the new one after a switch;
windows before the replay's start stay as they were. The database itself stores which versions exist and what the view
shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol, runtime_checkable

from strandline.connectors.sql.dialect import Dialect
from strandline.connectors.sql.sink import Mode, Table
from strandline.errors import InvalidStep, SinkError, StateError
from strandline.formats.sink_columns import Column, Kind, names_beside
from strandline.kernel.blocks.block import END, START
from strandline.kernel.watermarks import FOREVER
from strandline.plan.columns import PANE, columns_after
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Write

VERSIONS: Final = "strandline_versions"
ONLY_LIVE, ONLY_NEW, CHANGED = "only live", "only new", "changed"
_BESIDE: Final = ("_late", "_dead")


@runtime_checkable
class SqlSink(Protocol):
    """A sink that is a table of a SQL database."""

    @property
    def name(self) -> str: ...

    @property
    def table(self) -> Table: ...

    def database(self) -> Dialect:
        """Open a new connection."""
        ...


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns of a version for a reader: the key, the window's bounds, and the values."""

    key: tuple[str, ...]
    start: str
    end: str
    values: tuple[str, ...]

    @property
    def identity(self) -> tuple[str, ...]:
        """The key and the window's bounds."""
        return tuple(dict.fromkeys((*self.key, self.start, self.end)))

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.identity, *self.values)


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences between two versions in the windows that both have closed: row counts and examples."""

    compared: int
    only_live: int
    only_new: int
    changed: int
    beyond: int
    """Rows of windows that one of the two has not closed yet; they are not compared."""
    examples: tuple[tuple[str, dict[str, Any]], ...] = ()

    @property
    def is_none(self) -> bool:
        return not (self.only_live or self.only_new or self.changed)


def shape_of(write: Write, table: Table) -> Shape:
    """Return the columns of the panes that this sink writes."""
    known = [name for name in columns_after(write.of) if name not in PANE]
    names = names_beside(known)
    (output, *_) = to_stages(write).outputs
    start, end = names[START], names[END]
    key = table.key or (*(output.keys or ()), start, end)
    return Shape(key, start, end, tuple(name for name in known if name not in key))


def versioned(sink: Any, name: str) -> Any:
    """Copy a sink with another table."""
    if name == sink.table.name:
        raise InvalidStep(f"{name!r} is the live table", hint="give the new version another name")
    return replace(sink, table=replace(sink.table, name=name))


class Versions:
    """The versions of a table, stored in its database."""

    def __init__(self, database: Dialect, live: Table, shape: Shape) -> None:
        self._database, self._live, self._shape = database, live, shape
        text, number = (database.type_of(Column("", kind)) for kind in (Kind.TEXT, Kind.INTEGER))
        with database.transaction():
            database.execute(
                f"CREATE TABLE IF NOT EXISTS {VERSIONS} (base {text}, version {text}, since_ms {number}, "
                f"is_current {number}, shown {text}, PRIMARY KEY (base, version))"
            )

    def begin(self, name: str, since: int | None) -> None:
        """Register a new version before it is written, and create the readers' view."""
        with self._database.transaction():
            if not self._database.columns(self._live.name):
                raise SinkError(
                    f"the table {self._live.name!r} does not exist yet",
                    hint="let the live job write to it before the replay",
                )
            if self._current() is None:
                shown = self._select(self._live.name)
                self._record(self._live.name, None, shown, current=True)
                self._database.create_view(self._view, shown)
            known = self._known(name)
            if known is None:
                self._record(name, since, "", current=False)
            elif known[0] != since:
                raise StateError(
                    f"the version {name!r} was started from another time",
                    detail=f"{_time_text(known[0])} then, {_time_text(since)} now",
                    hint="continue from the same time, or drop it first",
                )

    def all(self) -> list[tuple[str, str, bool]]:
        """List every version: its name, the start of its replay, and whether readers see it."""
        query = f"SELECT version, since_ms, is_current FROM {VERSIONS} WHERE base = ? ORDER BY version"
        with self._database.transaction():
            found = self._database.execute(query, [self._live.name])
        return [(name, _time_text(since), bool(current)) for name, since, current in found]

    def difference(self, name: str, *, limit: int = 10) -> Difference:
        """Compare what readers see now with what they would see after a switch."""
        with self._database.transaction():
            since, shown = self._replayed_from(name)
            inside, reached = self._compared_windows(name, since)
            live, new = f"SELECT * FROM ({shown}) AS q", f"SELECT * FROM ({self._select(name)}) AS q"
            both = f"WITH live_rows AS ({live} WHERE {inside}), new_rows AS ({new} WHERE {inside})"
            parts = self._difference_queries(name)
            counts = {what: self._count(f"{both} SELECT count(*) FROM ({which}) AS d") for what, which in parts.items()}
            examples = [
                (what, row) for what, which in parts.items() for row in self._rows(both, which, what, limit, name)
            ]
            compared = self._count(f"{both} SELECT count(*) FROM live_rows") + counts[ONLY_NEW]
            beyond = 0
            if reached is not None:
                after, over = self._bound(self._shape.start, ">=", since), self._bound(self._shape.end, ">", reached)
                queries = [f"SELECT count(*) FROM ({each} WHERE {after} AND {over}) AS b" for each in (live, new)]
                beyond = sum(map(self._count, queries))
        return Difference(
            compared, counts[ONLY_LIVE], counts[ONLY_NEW], counts[CHANGED], beyond, tuple(examples[:limit])
        )

    def switch(self, name: str) -> None:
        """Switch readers to the new version at the end of this transaction."""
        with self._database.transaction():
            since, shown = self._replayed_from(name)
            view, now, present = self._view, self._select(name), [*self._database.columns(self._view)]
            if since is not None:
                ours = self._bound(self._shape.start, ">=", since)
                past = f"SELECT {self._column_list(present)} FROM ({shown}) AS past WHERE NOT ({ours})"
                now = f"SELECT {self._column_list()} FROM ({now}) AS rest WHERE {ours} UNION ALL {past}"
            if list(self._shape.columns[: len(present)]) != present:
                # A view whose columns changed other than by additions at the end must be created anew.
                self._database.execute(f"DROP VIEW IF EXISTS {self._database.quoted(view)}")
            self._database.create_view(view, now)
            self._database.execute(f"UPDATE {VERSIONS} SET is_current = 0 WHERE base = ?", [self._live.name])
            done = f"UPDATE {VERSIONS} SET is_current = 1, shown = ? WHERE base = ? AND version = ?"
            self._database.execute(done, [now, self._live.name, name])

    def drop(self, name: str) -> None:
        """Drop a version and its ledger; refused while readers see any of it."""
        with self._database.transaction():
            if self._known(name) is None:
                raise StateError(f"there is no version {name!r}", hint=f"choose from {', '.join(self._names())}")
            current, quoted = self._current(), self._database.quoted
            seen = "" if current is None else current[1]
            if quoted(name) in seen or quoted(f"{name}_now") in seen:
                raise StateError(
                    f"readers of {self._live.name}_current use the version {name!r}", hint="switch to another one first"
                )
            self._database.execute(f"DROP VIEW IF EXISTS {quoted(name + '_now')}")
            for table in (name, *(name + suffix for suffix in _BESIDE)):
                self._database.execute(f"DROP TABLE IF EXISTS {quoted(table)}")
            for table in ("strandline_ledger", "strandline_drivers"):
                if self._database.columns(table):
                    self._database.execute(f"DELETE FROM {table} WHERE sink = ?", [name])
            self._database.execute(f"DELETE FROM {VERSIONS} WHERE base = ? AND version = ?", [self._live.name, name])

    def close(self) -> None:
        self._database.close()

    def _replayed_from(self, name: str) -> tuple[int | None, str]:
        """Return the start of a version's replay, and the query that readers see now."""
        known, current = self._known(name), self._current()
        if known is None or current is None or not self._database.columns(name):
            raise StateError(
                f"there is no version {name!r} of {self._live.name!r}",
                detail=f"existing versions: {', '.join(self._names()) or 'none'}",
                hint="create it with strandline replay start",
            )
        if current[0] == name:
            raise StateError(f"readers already use the version {name!r}")
        return known[0], current[1]

    @property
    def _view(self) -> str:
        return f"{self._live.name}_current"

    def _common_values(self, name: str) -> list[str]:
        """The value columns that both versions have."""
        seen, there = (self._folded(each) for each in (self._view, name))
        return [each for each in self._shape.values if each.lower() in seen & there]

    def _folded(self, table: str) -> set[str]:
        return {column.lower() for column in self._database.columns(table)}

    def _difference_queries(self, name: str) -> dict[str, str]:
        """Queries over `live_rows` and `new_rows`, one for each kind of difference."""
        quoted, same = self._database.quoted, self._database.traits.same
        alike = " AND ".join(f"live_rows.{quoted(each)} {same} new_rows.{quoted(each)}" for each in self._shape.key)
        common = self._common_values(name)
        equal = " AND ".join(f"live_rows.{quoted(each)} {same} new_rows.{quoted(each)}" for each in common)
        columns = [f"live_rows.{quoted(each)}" for each in (*self._shape.identity, *common)]
        columns += [f"new_rows.{quoted(each)} AS {quoted('new_' + each)}" for each in common]
        shown = ", ".join(quoted(each) for each in (*self._shape.identity, *common))
        return {
            ONLY_LIVE: f"SELECT {shown} FROM live_rows WHERE NOT EXISTS (SELECT 1 FROM new_rows WHERE {alike})",
            ONLY_NEW: f"SELECT {shown} FROM new_rows WHERE NOT EXISTS (SELECT 1 FROM live_rows WHERE {alike})",
            CHANGED: (
                f"SELECT {', '.join(columns)} FROM live_rows JOIN new_rows ON {alike} WHERE NOT ({equal or '1 = 1'})"
            ),
        }

    def _compared_windows(self, name: str, since: int | None) -> tuple[str, int | None]:
        """Condition for the windows to compare, those since the replay's start that both versions have closed, and its
        end."""
        current = self._current()
        marks = [self._watermark(each) for each in (name, current[0] if current else name)]
        reached = min(marks)
        start = self._bound(self._shape.start, ">=", since)
        if reached == FOREVER:
            return start, None
        # The watermark is the last instant that counts as complete, so a closed window may end right after it.
        return f"{start} AND {self._bound(self._shape.end, '<=', reached + 1)}", reached + 1

    def _watermark(self, name: str) -> int:
        query = "SELECT watermark_ms FROM strandline_ledger WHERE sink = ? ORDER BY clock_ms DESC, batch DESC LIMIT 1"
        found = self._database.execute(query, [name])
        if not found:
            raise StateError(f"the ledger has no entry for {name!r}", hint="let its job deliver a batch first")
        return int(found[0][0])

    def _bound(self, column: str, sign: str, at: int | None) -> str:
        if at is None:
            return "1 = 1"
        kind = self._database.type_of(Column("", Kind.INSTANT))
        text = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        zone = "" if kind == "TEXT" else "+00"
        return f"{self._database.quoted(column)} {sign} CAST('{text}{zone}' AS {kind})"

    def _select(self, name: str) -> str:
        """Select the latest answers of a version, with the columns that it has."""
        relation = name if self._live.mode is Mode.UPSERT else f"{name}_now"
        there = self._folded(name)
        listed = [self._database.quoted(each) for each in self._shape.columns if each.lower() in there]
        return f"SELECT {', '.join(listed)} FROM {self._database.quoted(relation)}"

    def _column_list(self, there: Sequence[str] | None = None) -> str:
        """The columns that readers see; null where a version lacks one."""
        known = {each.lower() for each in (self._shape.columns if there is None else there)}
        quoted = self._database.quoted
        return ", ".join(
            quoted(each) if each.lower() in known else f"NULL AS {quoted(each)}" for each in self._shape.columns
        )

    def _rows(self, both: str, which: str, what: str, limit: int, name: str) -> list[dict[str, Any]]:
        common = self._common_values(name)
        names = [*self._shape.identity, *common, *(f"new_{each}" for each in common if what == CHANGED)]
        found = self._database.execute(f"{both} {which} LIMIT {limit}")
        return [dict(zip(names, row, strict=True)) for row in found]

    def _count(self, query: str) -> int:
        ((found,),) = self._database.execute(query)
        return int(found)

    def _known(self, name: str) -> tuple[int | None, str] | None:
        query = f"SELECT since_ms, shown FROM {VERSIONS} WHERE base = ? AND version = ?"
        found = self._database.execute(query, [self._live.name, name])
        return (found[0][0], found[0][1]) if found else None

    def _current(self) -> tuple[str, str] | None:
        query = f"SELECT version, shown FROM {VERSIONS} WHERE base = ? AND is_current = 1"
        found = self._database.execute(query, [self._live.name])
        return (found[0][0], found[0][1]) if found else None

    def _names(self) -> Sequence[str]:
        query = f"SELECT version FROM {VERSIONS} WHERE base = ? ORDER BY version"
        return [name for (name,) in self._database.execute(query, [self._live.name])]

    def _record(self, name: str, since: int | None, shown: str, *, current: bool) -> None:
        row = [self._live.name, name, since, int(current), shown]
        self._database.execute(f"INSERT INTO {VERSIONS} VALUES (?, ?, ?, ?, ?)", row)


def _time_text(since: int | None) -> str:
    return "the beginning" if since is None else datetime.fromtimestamp(since / 1000, UTC).isoformat()
