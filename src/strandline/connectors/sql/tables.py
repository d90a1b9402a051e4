"""Create, check or widen tables so that they fit the rows to write."""

from collections.abc import Mapping, Sequence

from strandline.connectors.sql.dialect import Dialect
from strandline.errors import SinkError
from strandline.formats.sink_columns import BATCH, NEWEST, Column, declared_column
from strandline.kernel.blocks.block import END, START
from strandline.kernel.window.panes import INDEX, RETRACTION


def fit(database: Dialect, table: str, columns: Sequence[Column], *, widen: bool, unique: Sequence[str] = ()) -> None:
    """Make a table fit these columns, or raise an error that lists the differences."""
    refuse_long_names(database, [table, *(column.name for column in columns)])
    found = {_folded(database, name): kind for name, kind in database.columns(table).items()}
    if not found:
        _create(database, table, columns, unique)
        return
    missing = [column for column in columns if _folded(database, column.name) not in found]
    there = [(column, found[_folded(database, column.name)]) for column in columns if column not in missing]
    wrong = [
        f"{column.name} is {kind.lower()}, expected {column.kind}"
        for column, kind in there
        if not database.fits(column.kind, kind)
    ]
    absent = [] if widen else [f"{column.name} ({column.kind}) is missing" for column in missing]
    if wrong or absent:
        raise SinkError(
            f"the table {table!r} does not fit the rows to write",
            detail="; ".join([*wrong, *absent]),
            hint="change the table, or write to another" + ("" if wrong else "; or allow adding columns: evolve=True"),
        )
    for column in missing:
        added = f"{database.quoted(column.name)} {database.type_of(column)}"
        database.execute(f"ALTER TABLE {database.quoted(table)} ADD COLUMN {added}")


def refuse_misfit(database: Dialect, table: str, columns: Sequence[tuple[str, str | None]], *, widen: bool) -> None:
    """Raise if an existing table does not fit the columns that the plan knows. Called before Spark starts."""
    found = {_folded(database, name): kind for name, kind in database.columns(table).items()}
    if not found:
        return
    missing = [name for name, _ in columns if _folded(database, name) not in found]
    wrong = []
    for name, kind in columns:
        declared = found.get(_folded(database, name))
        if kind is None or declared is None:
            continue
        column = declared_column(name, kind)
        if column is not None and not database.fits(column.kind, declared):
            wrong.append(f"{name} is {declared.lower()}, expected {column.kind}")
    absent = [] if widen else [f"{name} is missing" for name in missing]
    if wrong or absent:
        raise SinkError(
            f"the table {table!r} does not fit the rows to write",
            detail="; ".join([*wrong, *absent]),
            hint="change the table, or write to another" + ("" if wrong else "; or allow adding columns: evolve=True"),
        )


def create_now_view(database: Dialect, table: str, names: Mapping[str, str], keys: Sequence[str]) -> None:
    """Create `<table>_now`: the newest pane of each key and window, unless it was retracted.

    Newest is the later batch, then the later pane; a pane and its retraction have the same index, and the retraction
    wins.
    """
    quoted = database.quoted
    identity = ", ".join(quoted(name) for name in (*keys, names[START], names[END]))
    order = ", ".join(f"{quoted(names[name])} DESC" for name in (BATCH, INDEX, RETRACTION))
    newest = quoted(names[NEWEST])
    shown = ", ".join(quoted(name) for name in database.columns(table))
    rank = f"row_number() OVER (PARTITION BY {identity} ORDER BY {order}) AS {newest}"
    ranked = f"SELECT *, {rank} FROM {quoted(table)}"
    stands = f"{newest} = 1 AND NOT {quoted(names[RETRACTION])}"
    database.create_view(table + "_now", f"SELECT {shown} FROM ({ranked}) AS ranked WHERE {stands}")


def refuse_long_names(database: Dialect, names: Sequence[str]) -> None:
    """Refuse names that the database would truncate silently, since they might clash."""
    limit = database.traits.longest_name
    for name in names:
        if limit is not None and len(name.encode()) > limit:
            raise SinkError(
                f"the name {name!r} is too long", detail=f"at most {limit} bytes", hint="choose a shorter one"
            )


def _create(database: Dialect, table: str, columns: Sequence[Column], unique: Sequence[str]) -> None:
    quoted = database.quoted
    definitions = ", ".join(f"{quoted(column.name)} {database.type_of(column)}" for column in columns)
    update_room = database.traits.update_room if unique else ""
    database.execute(f"CREATE TABLE {quoted(table)} ({definitions}){update_room}")
    if unique and database.traits.indexes:
        names = ", ".join(map(quoted, unique))
        database.execute(f"CREATE UNIQUE INDEX {quoted(table + '_key')} ON {quoted(table)} ({names})")


def _folded(database: Dialect, name: str) -> str:
    return name if database.traits.case_sensitive else name.lower()
