"""Access one Delta Lake table: the log entries of a job, and commits that fail if another commit came in between."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa

from strandline.errors import SetupError, SinkError, SinkUnavailable
from strandline.ports.durable_files import sync_folder
from strandline.ports.ledger import LedgerEntry, Recorded

KEPT: Final = 1_000
"""How far back ledger entries of a job are looked up, much further than Spark can go back."""
BATCH: Final = "batch"
"""The column that a table is created with; the first rows add the others."""

_PLAIN_WRITER_VERSION: Final = 2
"""The writer protocol version that the library creates tables with."""
_FACTS: Final = "strandline"
_ENTRY_FIELDS: Final = ("batch", "digest", "watermark", "ends", "output")


Act = Callable[[Any, Any], None]
"""An operation that makes one commit on a table with the given commit properties."""


class CommitConflict(Exception):
    """Raised when another commit came first, and ours must not follow it unseen."""


class DeltaLog:
    """A table as of its last refresh; it is created if missing."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self.uri, self._options = uri, dict(options)
        self._last: dict[str, Recorded] = {}
        library = delta_library()
        with self.sink_errors():
            there = library.DeltaTable.is_deltatable(self.uri, self._options)
            if not there:
                schema = pa.schema([(BATCH, pa.int64())])
                library.DeltaTable.create(self.uri, schema, mode="ignore", storage_options=self._options)
            self.table = library.DeltaTable(self.uri, storage_options=self._options)
            if not there:
                # The other records cannot be read without the first one.
                self._make_durable(-1)

    def refresh(self) -> None:
        with self.sink_errors():
            self.table.update_incremental()

    def columns(self) -> Mapping[str, Any]:
        """The table's columns and their types."""
        return pl.Schema(pa.schema(self.table.schema().to_arrow()))

    def widen(self, rows: pl.DataFrame) -> None:
        """Add the columns that the rows have and the table lacks."""
        library, known = delta_library(), self.columns()
        new = [name for name in rows.columns if name not in known]
        if new:
            schema = library.Schema.from_arrow(rows.select(new).clear().to_arrow().schema)
            with self.sink_errors():
                self.table.alter.add_columns(schema.fields)
                self.table.update_incremental()

    def epoch(self, lineage: str) -> int | None:
        found: int | None = self.table.transaction_version(_driver(lineage))
        return found

    def latest(self, lineage: str) -> Recorded | None:
        """The ledger entry of the last batch."""
        number = self.table.transaction_version(lineage)
        if number is None:
            return None
        known = self._last.get(lineage)
        if known is None or known.batch != number:
            known = self.find(lineage, number)
        if known is None:
            raise SinkError(
                f"the log of {self.uri} no longer has batch {number}",
                hint="keep the table's log longer than the job may be stopped (delta.logRetentionDuration)",
            )
        self._last[lineage] = known
        return known

    def find(self, lineage: str, batch: int) -> Recorded | None:
        """Find the ledger entry of a batch; None if it is unknown or too old."""
        newest = self.table.transaction_version(lineage)
        if newest is None or batch > newest or batch <= newest - KEPT:
            return None
        with self.sink_errors():
            for commit in self.table.history():
                facts = json.loads(commit.get(_FACTS) or "{}")
                if facts.get("lineage") == lineage and facts.get("batch") == batch:
                    return Recorded(*(facts[word] for word in _ENTRY_FIELDS))
        return None

    def commit(
        self,
        act: Act,
        entry: LedgerEntry,
        *,
        watermark: int,
        recorded: bool,
        epoch: int | None = None,
    ) -> None:
        """Run one commit with the driver's epoch, and with the ledger entry if it is to be recorded.

        Raises an error if another driver has claimed the table or written this batch since the last refresh: both
        commits carry the same transaction ids, and one of two concurrent ones fails.
        """
        library = delta_library()
        ids = [library.Transaction(_driver(entry.lineage), entry.epoch if epoch is None else epoch)]
        facts: dict[str, Any] = {"lineage": entry.lineage, "epoch": ids[0].version}
        if recorded:
            ids.append(library.Transaction(entry.lineage, entry.batch))
            values = (entry.batch, entry.digest, watermark, entry.ends, entry.output)
            facts |= dict(zip(_ENTRY_FIELDS, values, strict=True)) | {"starts": entry.starts}
        properties = library.CommitProperties({_FACTS: json.dumps(facts)}, app_transactions=ids)
        before = self.table.version()
        with self.sink_errors():
            act(self.table, properties)
            self.table.update_incremental()
            self._make_durable(before)
        if recorded:
            self._last[entry.lineage] = Recorded(entry.batch, entry.digest, watermark, entry.ends, entry.output)

    def commit_after(self, name: str, number: int, act: Act) -> None:
        """Run one commit that follows the commit of this name and number; raise an error if another one does
        already."""
        library, before = delta_library(), self.table.version()
        if (self.table.transaction_version(name) or 0) != number:
            raise CommitConflict(f"{name} is not at {number}")
        with self.sink_errors():
            act(self.table, library.CommitProperties(app_transactions=[library.Transaction(name, number + 1)]))
            self.table.update_incremental()
            self._make_durable(before)

    def _make_durable(self, before: int) -> None:
        """Sync files and folder entries written since, on a local disk; object stores do so themselves."""
        root = Path(self.uri)
        if "://" in self.uri or not root.is_dir():
            return
        folders = {root / "_delta_log", root}
        for version in range(before + 1, self.table.version() + 1):
            record = root / "_delta_log" / f"{version:020}.json"
            lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
            added = [root / line["add"]["path"] for line in lines if "add" in line]
            for path in [*added, record]:
                if path.exists():  # another process may have replaced it
                    sync_file(path)
                    folders.add(path.parent)
        for folder in folders:
            sync_folder(folder)

    def sink_errors(self) -> AbstractContextManager[None]:
        return sink_errors(self.uri)

    @property
    def is_plain(self) -> bool:
        """Whether adding a file needs nothing but a log entry: no partition folders and no column rules."""
        return (
            "://" not in self.uri
            and not self.table.metadata().partition_columns
            and self.table.protocol().min_writer_version <= _PLAIN_WRITER_VERSION
            and not any(field.metadata for field in self.table.schema().fields)
        )


@contextmanager
def sink_errors(uri: str) -> Iterator[None]:
    """Convert the library's errors to sink errors."""
    errors = delta_library().exceptions
    try:
        yield
    except errors.CommitFailedError as problem:
        raise CommitConflict(str(problem)) from None
    except OSError as problem:
        raise SinkUnavailable(f"{uri} cannot be reached now", detail=_first_line(problem)) from None
    except errors.DeltaError as problem:
        raise SinkError(f"{uri} refused a batch", detail=_first_line(problem)) from None


def empty_commit(table: Any, properties: Any) -> None:
    """Make a commit without rows."""
    table.create_write_transaction([], "append", table.schema(), commit_properties=properties)


def append_rows(rows: pl.DataFrame, options: Mapping[str, str]) -> Act:
    """Return a commit that appends rows, and adds columns that the table lacks."""

    def act(table: Any, properties: Any) -> None:
        delta_library().write_deltalake(
            table, rows, mode="append", schema_mode="merge", storage_options=dict(options) or None,
            commit_properties=properties,
        )  # fmt: skip

    return act


def delta_library() -> Any:
    """Import the library, an optional extra."""
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError:
        raise SetupError("deltalake is not installed", hint='pip install "strandline[delta]"') from None
    return deltalake


def _driver(lineage: str) -> str:
    return f"{lineage}/driver"


def sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0][:300]
