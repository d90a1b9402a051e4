"""Write panes, late elements and dead letters to database tables, in one transaction per batch with the ledger entry.

For a sink called `totals`, the table `totals` holds every pane as emitted, and the view `totals_now` the latest answer
for each key and window. With a key, `totals` holds the latest answers itself. `totals_late` and `totals_dead` hold late
elements and dead letters with their reasons.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import polars as pl

from strandline.connectors.sql.dialect import Dialect, Refusal
from strandline.connectors.sql.isolate_bad_rows import LEAST, Isolation, Put
from strandline.connectors.sql.tables import create_now_view, fit, refuse_long_names, refuse_misfit
from strandline.connectors.sql.upserts import Upsert
from strandline.errors import InvalidStep, SinkError
from strandline.formats.refused_rows import Refused, refused_letters
from strandline.formats.row_files import FIRST_MS, LAST_MS
from strandline.formats.sink_columns import Column, Kind, SinkRows, names_beside, to_sink_rows
from strandline.kernel.blocks.block import AT, END, START
from strandline.kernel.latest_per_key import latest_rows
from strandline.kernel.output import Output, counts_to_facts
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.plan.endpoints import UpsertKey
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.ledger import LedgerEntry, Recorded, Written, judge

KEPT: Final = 1_000
"""Ledger entries that are kept of a job, many more than Spark can go back."""

_LEDGER: Final = "strandline_ledger"
_DRIVERS: Final = "strandline_drivers"
_RESERVED: Final = (
    _LEDGER, _DRIVERS, "strandline_staging", "strandline_rows", "strandline_redrives", "strandline_redriven",
)  # fmt: skip
"""Names of Strandline's own tables. A temporary table hides a permanent one of its name."""
_TEXTS: Final = ("digest", "counts", "committed", "starts", "ends", "output")
_ENTRY: Final = tuple(Column(name, Kind.TEXT if name in ("lineage", "sink", *_TEXTS) else Kind.INTEGER) for name in (
    "lineage", "sink", "batch", "epoch", "digest", "watermark_ms", "clock_ms", "counts", "committed", "starts", "ends",
    "output",
))  # fmt: skip


class Mode(StrEnum):
    """How a pane that corrects an earlier one is written: appended beside it, or in its place."""

    APPEND = "append"
    UPSERT = "upsert"


class OnRefused(StrEnum):
    """What to do about a table that has never accepted a row, and refuses all of them."""

    STOP = "stop"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class Table:
    """A sink's table settings."""

    name: str
    mode: Mode = Mode.APPEND
    key: tuple[str, ...] = ()
    """Key columns by their public names; if empty, the panes' keys and windows."""
    evolve: bool = False
    on_refused: OnRefused = OnRefused.STOP

    @property
    def definition(self) -> dict[str, Any]:
        """The fields that make it the same table to a checkpoint."""
        return {"table": self.name, "mode": self.mode, "key": self.key}

    @property
    def upsert_key(self) -> UpsertKey | None:
        return UpsertKey(self.key) if self.mode is Mode.UPSERT else None

    @property
    def latest_view(self) -> str | None:
        return f"the view {self.name}_now" if self.mode is Mode.APPEND else None


def table_of(
    name: str,
    mode: Mode | str | None,
    key: Iterable[str] | None,
    evolve: bool,
    on_refused: OnRefused | str = OnRefused.STOP,
) -> Table:
    """Check a table's settings; with a key, the default mode is upsert."""
    columns = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    chosen = Mode(mode or (Mode.UPSERT if columns else Mode.APPEND))
    if not name:
        raise InvalidStep("the table has no name", hint="name the table")
    if name.lower() in _RESERVED:
        raise InvalidStep(f"the table name {name!r} is reserved", hint="choose another name")
    if columns and chosen is Mode.APPEND:
        raise InvalidStep("appended rows have no key", hint='leave out key, or write mode="upsert"')
    if on_refused not in list(OnRefused):
        raise InvalidStep(f"unknown on_refused {on_refused!r}", hint="choose stop or continue")
    return Table(name, chosen, columns, evolve, OnRefused(on_refused))


def open_table(database: Dialect, table: Table, output: Deliver, name: str) -> "OpenSql":
    """Open a table as a sink; close the connection if that fails."""
    try:
        return OpenSql(database, table, output, name)
    except BaseException:
        database.close()
        raise


class OpenSql:
    """An open database table, used from one thread at a time."""

    def __init__(self, database: Dialect, table: Table, output: Deliver, name: str) -> None:
        self._database, self._table, self._keys, self._name = database, table, output.keys, name
        self._mask = () if output.dead is None else output.dead.mask
        self._has_latest_view = output.has_latest_view
        self._fitted: set[tuple[str, tuple[Column, ...]]] = set()
        """Tables and columns that fit, as of the last committed transaction."""
        self._fitted_now: set[tuple[str, tuple[Column, ...]]] = set()
        self._only_refused: dict[str, int] = {}
        """For each table that has accepted no row since the start, how many it has refused."""
        self._letter_sink: Callable[[pl.DataFrame, LedgerEntry], None] | None = None
        if table.mode is Mode.UPSERT and not table.key and output.keys is None:
            raise InvalidStep(
                f"{name} writes elements by key, and no key is given", hint='name the columns: key=["id"]'
            )
        refuse_long_names(database, [table.name + suffix for suffix in ("_late", "_dead", "_now", "_key")])
        with database.transaction():
            refuse_misfit(database, table.name, output.columns, widen=table.evolve)
            self._create_ledger()

    def refused_to(self, keep: Callable[[pl.DataFrame, LedgerEntry], None]) -> None:
        self._letter_sink = keep

    def claim(self, lineage: str) -> int:
        with self._database.transaction():
            ((epoch,),) = self._database.execute(
                f"INSERT INTO {_DRIVERS} (lineage, sink, epoch, since) VALUES (?, ?, 1, ?) ON CONFLICT (lineage, sink) "
                f"DO UPDATE SET epoch = {_DRIVERS}.epoch + 1, since = excluded.since RETURNING epoch",
                [lineage, self._table.name, _utc_now()],
            )
        return int(epoch)

    def latest(self, lineage: str) -> Recorded | None:
        with self._database.transaction():
            return self._latest(lineage)

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        with self._batch():
            known = self._judge(entry)
            done = known or self._write(output, entry)
            if known is None:
                crash_point("C9")
                self._record(output, entry)
        crash_point("C10")
        return done

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        with self._batch():
            known = self._judge(entry)
            if known is None:
                self._record(output, entry)
        return known or Written()

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        with self._batch():
            judge(replace(entry, starts=None), self._epoch(entry), None, None, sink=self._name)
            done = self._write(output, entry)
            crash_point("C9")
        crash_point("C10")
        return done

    @contextmanager
    def _batch(self) -> Iterator[None]:
        """Run one transaction; tables that it creates count as fitting after the commit."""
        self._fitted_now = set()
        with self._database.transaction():
            yield
        self._fitted |= self._fitted_now

    def close(self) -> None:
        self._database.close()

    def _write(self, output: Output, entry: LedgerEntry) -> Written:
        """Write panes and late elements; write the rows that their tables refuse as dead letters."""
        refused: list[Refused] = []
        if output.panes is not None:
            refused += self._write_panes(output.panes, entry.batch)
        if output.late is not None:
            refused += self._add(self._table.name + "_late", output.late, entry.batch, widen=True)[1]
        letters = [] if output.dead is None else [output.dead]
        if refused:
            rejected = self._refused_letters(refused, output.progress.clock, entry)
            if self._letter_sink is None:
                letters.append(rejected)
            else:
                self._letter_sink(rejected, entry)
        if letters:
            self._write_letters(_acceptable(pl.concat(letters, how="diagonal_relaxed")), entry.batch)
        return Written(refused=len(refused))

    def _write_letters(self, letters: pl.DataFrame, batch: int) -> None:
        """Write dead letters; if some are refused, write all with texts in ASCII, which any encoding can hold."""
        table = self._table.name + "_dead"
        known = to_sink_rows(letters, batch)
        self._fit(table, known.columns, widen=True)
        try:
            with self._database.savepoint():
                self._database.load(table, known)
        except Refusal:
            plain = to_sink_rows(letters.with_columns(_in_ascii(name) for name in _texts_of(letters)), batch)
            try:
                with self._database.savepoint():
                    self._database.load(table, plain)
            except Refusal as problem:
                raise SinkError(f"{self._name} refused a dead letter", detail=str(problem)) from None

    def _refused_letters(self, refused: list[Refused], clock: int, entry: LedgerEntry) -> pl.DataFrame:
        return refused_letters(refused, sink=self._name, lineage=entry.lineage, clock=clock, mask=self._mask)

    def _write_panes(self, panes: pl.DataFrame, batch: int) -> list[Refused]:
        names = names_beside(panes.columns)
        if self._table.mode is Mode.UPSERT:
            return self._merge(panes, names, batch)
        first, refused = self._add(self._table.name, panes, batch, widen=self._table.evolve)
        if first and self._has_latest_view and self._keys is not None and START in panes.columns:
            create_now_view(self._database, self._table.name, names, self._keys)
        return refused

    def _merge(self, panes: pl.DataFrame, names: Mapping[str, str], batch: int) -> list[Refused]:
        window = (names[START], names[END]) if START in panes.columns else None
        key = self._table.key or (*(self._keys or ()), *(window or ()))
        incoming = to_sink_rows(panes, batch)
        _refuse_unknown(key, incoming, self._name)
        self._fit(self._table.name, incoming.columns, widen=self._table.evolve, unique=key)
        internal = {public: name for name, public in names.items() if name in panes.columns}
        latest = latest_rows(panes, [internal.get(name, name) for name in key])
        upsert = Upsert(self._table.name, key, window)
        gone, rows = to_sink_rows(latest.gone, batch), to_sink_rows(latest.rows, batch)
        removed = Isolation(lambda some: upsert.remove(self._database, gone.only(some)), self._database.savepoint)
        if gone.rows.height:
            removed.write(gone.rows, lambda _: None)
        put = self._isolated(self._table.name, rows, lambda some: upsert.put(self._database, rows.only(some)))
        return [*removed.refused, *put]

    def _add(self, table: str, frame: pl.DataFrame, batch: int, *, widen: bool) -> tuple[bool, list[Refused]]:
        """Add rows; return whether these columns are new to the table, and the refused rows."""
        incoming = to_sink_rows(frame, batch)
        first = self._fit(table, incoming.columns, widen=widen)
        return first, self._isolated(table, incoming, lambda rows: self._database.load(table, incoming.only(rows)))

    def _isolated(self, table: str, incoming: SinkRows, put: Put) -> list[Refused]:
        """Write rows; return those that the table refuses, or raise if it refuses everything."""
        isolation = Isolation(put, self._database.savepoint)
        isolation.write(incoming.rows, lambda refused: self._refuse_wrong(table, refused))
        only_refused = self._only_refused.get(table, 0) + len(isolation.refused)
        self._only_refused[table] = 0 if isolation.taken else only_refused
        return isolation.refused

    def _refuse_wrong(self, table: str, refused: list[Refused]) -> None:
        """Raise if a table has never accepted a row, and refused so many that it is wrong, not the rows."""
        count = self._only_refused.get(table, 0) + len(refused)
        if count < LEAST or self._table.on_refused is OnRefused.CONTINUE:
            return
        if not self._database.execute(f"SELECT 1 FROM {self._database.quoted(table)} LIMIT 1"):
            raise SinkError(
                f"the table {table!r} is empty, and refused each of {count} rows",
                detail=refused[-1].detail,
                hint="change the table to accept the pipeline's rows, and the next start tries the batch again; or "
                'let all refused rows become dead letters: on_refused="continue"',
            )

    def _fit(self, table: str, columns: tuple[Column, ...], *, widen: bool, unique: tuple[str, ...] = ()) -> bool:
        """Make the table fit; return True if these columns are seen for the first time."""
        if (table, columns) in self._fitted:
            return False
        fit(self._database, table, columns, widen=widen, unique=unique)
        self._fitted_now.add((table, columns))
        return True

    def _judge(self, entry: LedgerEntry) -> Written | None:
        epoch = self._epoch(entry)
        known = self._find("AND batch = ?", entry.lineage, entry.batch)
        return judge(entry, epoch, known, self._latest(entry.lineage), sink=self._name)

    def _epoch(self, entry: LedgerEntry) -> int | None:
        """The newest claimed epoch. The row lock prevents another claim until the transaction ends."""
        row = [entry.lineage, self._table.name]
        self._database.execute(f"UPDATE {_DRIVERS} SET epoch = epoch WHERE lineage = ? AND sink = ?", row)
        found = self._database.execute(f"SELECT epoch FROM {_DRIVERS} WHERE lineage = ? AND sink = ?", row)
        return int(found[0][0]) if found else None

    def _latest(self, lineage: str) -> Recorded | None:
        return self._find("ORDER BY batch DESC LIMIT 1", lineage)

    def _find(self, which: str, lineage: str, *values: object) -> Recorded | None:
        query = (
            f"SELECT batch, digest, watermark_ms, ends, output FROM {_LEDGER} WHERE lineage = ? AND sink = ? {which}"
        )
        found = self._database.execute(query, [lineage, self._table.name, *values])
        return Recorded(*found[0]) if found else None

    def _record(self, output: Output, entry: LedgerEntry) -> None:
        watermark, clock = output.progress.watermark, output.progress.clock
        counts = json.dumps(dict(counts_to_facts(output.counts)))
        values = [
            entry.lineage,
            self._table.name,
            entry.batch,
            entry.epoch,
            entry.digest,
            watermark,
            clock,
            counts,
            _utc_now(),
        ]
        values += [entry.starts, entry.ends, entry.output]
        names = ", ".join(column.name for column in _ENTRY)
        self._database.execute(f"INSERT INTO {_LEDGER} ({names}) VALUES ({', '.join('?' * len(values))})", values)
        if entry.batch % 100 == 0:
            old = [entry.lineage, self._table.name, entry.batch - KEPT]
            self._database.execute(f"DELETE FROM {_LEDGER} WHERE lineage = ? AND sink = ? AND batch <= ?", old)

    def _create_ledger(self) -> None:
        if self._database.traits.creation_lock:
            self._database.execute(self._database.traits.creation_lock)
        text, number = (self._database.type_of(Column("", kind)) for kind in (Kind.TEXT, Kind.INTEGER))
        self._database.execute(
            f"CREATE TABLE IF NOT EXISTS {_DRIVERS} (lineage {text}, sink {text}, epoch {number}, since {text}, "
            "PRIMARY KEY (lineage, sink))"
        )
        columns = ", ".join(f"{column.name} {self._database.type_of(column)}" for column in _ENTRY)
        self._database.execute(f"CREATE TABLE IF NOT EXISTS {_LEDGER} ({columns}, PRIMARY KEY (lineage, sink, batch))")
        fit(self._database, _LEDGER, _ENTRY, widen=True)


def _acceptable(letters: pl.DataFrame) -> pl.DataFrame:
    """Make dead letters acceptable to every database: they must be written, and their raw bytes are kept anyway.

    Some databases accept no text with a NUL character, and no time outside the calendar.
    """
    cleaned = letters.with_columns(pl.col(pl.String).str.replace_all("\x00", "␀", literal=True))
    if AT not in cleaned.columns:
        return cleaned
    at = pl.col(AT)
    ends = pl.when(at < FIRST_MS).then(pl.lit(NEVER)).when(at > LAST_MS).then(pl.lit(FOREVER))
    return cleaned.with_columns(ends.otherwise(at).alias(AT))


def _texts_of(letters: pl.DataFrame) -> list[str]:
    return [name for name, kind in letters.schema.items() if kind == pl.String]


def _in_ascii(name: str) -> pl.Expr:
    """Escape the characters of a text column that are not in ASCII."""
    return pl.col(name).map_elements(
        lambda text: text.encode("ascii", "backslashreplace").decode(), return_dtype=pl.String
    )


def _refuse_unknown(key: tuple[str, ...], rows: SinkRows, sink: str) -> None:
    unknown = [name for name in key if name not in rows.names]
    if unknown:
        raise SinkError(
            f"{sink} needs the key columns {', '.join(unknown)}, which the rows do not have",
            detail=f"the rows have {', '.join(rows.names)}",
            hint="name other columns",
        )


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
