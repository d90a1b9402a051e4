"""Write panes to a Delta Lake table together with the ledger, and late elements and dead letters to two tables beside
it.

A batch's commit carries two transaction ids: the lineage with the batch number, and the driver with its epoch. Its
metadata holds the digest of the source range, which is compared before a batch counts as known. Delta has no
transaction over several tables: late elements and dead letters are committed first, each once, then the panes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import polars as pl

from strandline.connectors.delta.dead_letters import DeltaLetters
from strandline.connectors.delta.table import (
    BATCH,
    Act,
    CommitConflict,
    DeltaLog,
    append_rows,
    delta_library,
    empty_commit,
)
from strandline.connectors.delta.task_files import DeltaWriter, actions, storable, write_table_file
from strandline.connectors.delta.upserts import Merge
from strandline.errors import InvalidSecret, InvalidStep, SinkError, SinkUnavailable, StateError
from strandline.formats.row_files import kinds_of, to_public_columns
from strandline.formats.secrets import Secret
from strandline.formats.sink_columns import names_beside
from strandline.kernel.blocks.block import END, START
from strandline.kernel.latest_per_key import latest_rows
from strandline.kernel.output import Output
from strandline.model.arguments import checked
from strandline.plan.endpoints import Ledgered, UpsertKey
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.file_stamps import label, show
from strandline.ports.ledger import LedgerEntry, Recorded, Written, judge
from strandline.ports.sinks import Stamp

Done = TypeVar("Done")

_ATTEMPTS: Final = 50
_SECRET_WORDS: Final = ("secret", "key", "token", "password", "sas", "credential")


class Mode(StrEnum):
    """How a pane that corrects an earlier one is written: appended beside it, or in its place."""

    APPEND = "append"
    UPSERT = "upsert"


@dataclass(frozen=True, slots=True)
class Delta(Ledgered):
    """A Delta table as a sink, and its storage options. Secrets are references that are resolved late."""

    path: str
    mode: Mode = Mode.APPEND
    key: tuple[str, ...] = ()
    evolve: bool = False
    options: tuple[tuple[str, str | Secret], ...] = field(default=())

    def __post_init__(self) -> None:
        for name, value in self.options:
            if isinstance(value, str) and any(word in name.lower() for word in _SECRET_WORDS):
                raise InvalidSecret(f"the option {name} contains a secret as text", hint='write sl.secret("env:NAME")')

    @property
    def name(self) -> str:
        return f"delta({self.path!r})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """The fields that make it the same sink to a checkpoint; storage options are left out."""
        return {"path": self.path, "mode": self.mode, "key": self.key}

    @property
    def needed_columns(self) -> tuple[str, ...]:
        return self.key

    @property
    def upsert_key(self) -> UpsertKey | None:
        return UpsertKey(self.key) if self.mode is Mode.UPSERT else None

    def open(self, output: Deliver) -> "OpenDelta":
        if self.mode is Mode.UPSERT and not self.key and output.keys is None:
            raise InvalidStep(
                f"{self.name} writes elements by key, and no key is given", hint='name the columns: key=["id"]'
            )
        opened = OpenDelta(self, output.keys)
        opened.refuse_missing(name for name, kind in output.columns if kind is not None)
        return opened

    def letters(self) -> DeltaLetters:
        """Open the dead letters beside the table."""
        return DeltaLetters(f"{self.path}_dead", self.revealed())

    def revealed(self) -> dict[str, str]:
        """The storage options, with resolved secrets."""
        return {name: each if isinstance(each, str) else each.reveal() for name, each in self.options}


@checked
def delta(
    path: str | Path,
    *,
    mode: Mode | str | None = None,
    key: Iterable[str] | None = None,
    evolve: bool = False,
    options: Mapping[str, str | Secret] | None = None,
) -> Delta:
    """Write panes to a Delta Lake table: `delta("lake/totals")`, `delta("s3://lake/totals", options={…})`.

    By default every pane is appended. With `mode="upsert"` or a `key` the table holds the latest answers, corrections
    applied. Late elements and dead letters go to `<path>_late` and `<path>_dead`. `evolve` allows adding columns.
    """
    columns = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    chosen = Mode(mode or (Mode.UPSERT if columns else Mode.APPEND))
    if not str(path):
        raise InvalidStep("the table has no path", hint="give a path")
    if str(path).startswith("memory:"):
        raise InvalidStep(f"the table {path} is gone when the process ends", hint="give a path, or an object store")
    if columns and chosen is Mode.APPEND:
        raise InvalidStep("appended rows have no key", hint='leave out key, or write mode="upsert"')
    return Delta(str(path).rstrip("/"), chosen, columns, evolve, tuple((options or {}).items()))


class OpenDelta:
    """An open Delta sink."""

    def __init__(self, sink: Delta, keys: tuple[str, ...] | None) -> None:
        self._sink, self._keys = sink, keys
        self._options = sink.revealed()
        self._panes = DeltaLog(sink.path, self._options)
        self._beside: dict[str, DeltaLog] = {}

    def refuse_missing(self, names: Iterable[str]) -> None:
        """Raise if an existing table lacks columns that the plan knows. Called before Spark starts."""
        known = self._panes.columns()
        absent = [name for name in names if name not in known]
        if absent and [*known] != [BATCH] and known and not self._sink.evolve:
            raise SinkError(
                f"the table {self._sink.path} does not fit the rows to write",
                detail="; ".join(f"{name} is missing" for name in absent),
                hint="write to another table; or allow adding columns: evolve=True",
            )

    def claim(self, lineage: str) -> int:
        def once() -> int:
            epoch = (self._panes.epoch(lineage) or 0) + 1
            claim = LedgerEntry(lineage, epoch, 0, "")
            self._panes.commit(empty_commit, claim, watermark=0, recorded=False)
            if self._panes.is_plain:
                with self._panes.sink_errors():
                    show(Path(self._sink.path), lineage, epoch)
            return epoch

        return self._retry_on_conflict(self._panes, once)

    def latest(self, lineage: str) -> Recorded | None:
        self._panes.refresh()
        return self._panes.latest(lineage)

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        done = self._retry_on_conflict(
            self._panes, lambda: self._judge(entry) or self._send(output, entry, recorded=True)
        )
        crash_point("C10")
        return done

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        def once() -> Written:
            known = self._judge(entry)
            if known is None:
                self._panes.commit(empty_commit, entry, watermark=output.progress.watermark, recorded=True)
            return known or Written()

        return self._retry_on_conflict(self._panes, once)

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        def once() -> Written:
            epoch = self._panes.epoch(entry.lineage)
            judge(replace(entry, starts=None), epoch, None, None, sink=self._sink.name)
            return self._send(output, entry, recorded=False)

        done = self._retry_on_conflict(self._panes, once)
        crash_point("C10")
        return done

    def writer(self) -> DeltaWriter | None:
        plain = self._sink.mode is Mode.APPEND and self._panes.is_plain
        return DeltaWriter(str(Path(self._sink.path).absolute())) if plain else None

    def swept(self, stamp: Stamp) -> None:
        if self._panes.is_plain:
            for path in Path(self._sink.path).glob(f"part-{label(stamp)}-*"):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        pass

    def _judge(self, entry: LedgerEntry) -> Written | None:
        log = self._panes
        known = log.find(entry.lineage, entry.batch)
        return judge(entry, log.epoch(entry.lineage), known, log.latest(entry.lineage), sink=self._sink.name)

    def _send(self, output: Output, entry: LedgerEntry, *, recorded: bool) -> Written:
        for part, frame in (("late", output.late), ("dead", output.dead)):
            if frame is not None and frame.height:
                self._add_beside(part, to_public_columns(frame, entry.batch), entry, recorded=recorded)
        crash_point("C9")
        act: Act = empty_commit
        if output.parts:
            act = self._part_commit(output, entry)
        elif output.panes is not None and output.panes.height:
            act = self._pane_commit(output.panes, entry.batch)
        elif not recorded:
            return Written()
        self._panes.commit(act, entry, watermark=output.progress.watermark, recorded=recorded)
        return Written()

    def _pane_commit(self, panes: pl.DataFrame, batch: int) -> Act:
        rows = storable(to_public_columns(panes, batch))
        self._refuse_changed_columns(rows)
        if self._sink.mode is Mode.APPEND:
            return append_rows(rows, self._options)
        names = names_beside(panes.columns)
        window = (names[START], names[END]) if START in panes.columns else None
        key = self._sink.key or (*(self._keys or ()), *(window or ()))
        unknown = [name for name in key if name not in rows.columns]
        if unknown:
            raise SinkError(
                f"{self._sink.name} needs the key columns {', '.join(unknown)}, which the rows do not have",
                detail=f"the rows have {', '.join(rows.columns)}",
                hint="name other columns",
            )
        internal = {public: name for name, public in names.items() if name in panes.columns}
        latest = latest_rows(panes, [internal.get(name, name) for name in key])
        self._panes.widen(rows)
        return Merge(key, window).of(
            storable(to_public_columns(latest.rows, batch)), storable(to_public_columns(latest.gone, batch))
        )

    def _part_commit(self, output: Output, entry: LedgerEntry) -> Act:
        """Commit the files of tasks together with a file of the rows that came to the driver."""
        files = [part.told for part in output.parts]
        for each in files:
            path = Path(self._sink.path) / each["file"]["path"]
            if not path.exists() or path.stat().st_size != each["file"]["size"]:
                raise SinkError(
                    f"a task has written {path}, which is missing or incomplete on the driver",
                    hint="write to a folder that all machines of the cluster share",
                )
        if output.panes is not None and output.panes.height:
            name = label(Stamp(entry.lineage, entry.epoch, entry.batch))
            with self._panes.sink_errors():
                files.append(
                    write_table_file(
                        Path(self._sink.path), name, storable(to_public_columns(output.panes, entry.batch))
                    )
                )
        for each in files:
            rows = pl.DataFrame(schema=kinds_of(each["columns"]))
            self._refuse_changed_columns(rows)
            self._panes.widen(rows)

        def act(table: Any, properties: Any) -> None:
            delta_files = actions(delta_library(), tuple(files))
            table.create_write_transaction(delta_files, "append", table.schema(), commit_properties=properties)

        return act

    def _refuse_changed_columns(self, rows: pl.DataFrame) -> None:
        """Refuse changed column types; new columns are allowed with `evolve`, or in a new table."""
        known = self._panes.columns()
        wrong = [
            f"{name} is {known[name]}, expected {kind}"
            for name, kind in rows.schema.items()
            if name in known and known[name] != kind
        ]
        new = [name for name in rows.columns if name not in known]
        absent = [] if self._sink.evolve or [*known] == [BATCH] else new
        if wrong or absent:
            problems = [*wrong, *(f"{name} ({rows.schema[name]}) is missing" for name in absent)]
            raise SinkError(
                f"the table {self._sink.path} does not fit the rows to write",
                detail="; ".join(problems),
                hint="write to another table" + ("" if wrong else "; or allow adding columns: evolve=True"),
            )

    def _add_beside(self, part: str, rows: pl.DataFrame, entry: LedgerEntry, *, recorded: bool) -> None:
        """Append late elements or dead letters to their own table, which is created when there are any."""
        if part not in self._beside:
            self._beside[part] = DeltaLog(f"{self._sink.path}_{part}", self._options)
        log = self._beside[part]

        def once() -> None:
            known = log.find(entry.lineage, entry.batch) if recorded else None
            if known is None:
                act = append_rows(storable(rows), self._options)
                log.commit(act, entry, watermark=0, recorded=recorded)
            elif known.digest != entry.digest:
                raise StateError(
                    f"batch {entry.batch} is already in {log.uri}, made from another range of the source",
                    hint="restore the checkpoint and the tables from the same moment, or write to a new table",
                )

        self._retry_on_conflict(log, once)

    def _retry_on_conflict(self, log: DeltaLog, act: Callable[[], Done]) -> Done:
        """Act on the newest version of the table; retry if another commit came in between."""
        reason = ""
        for _ in range(_ATTEMPTS):
            log.refresh()
            try:
                return act()
            except CommitConflict as problem:
                reason = str(problem)
        raise SinkUnavailable(f"{log.uri} was written to by other processes at every attempt", detail=reason[:200])
