"""One table of Delta Lake: what its log says of a job, and commits that hold only if nobody came in between."""

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
"""So far back are the entries of a job looked for, much further than Spark can go."""
BATCH: Final = "batch"
"""The column that a table is made with; the others come with the first rows."""

_WITHOUT_RULES: Final = 2
"""The version of the protocol for writers that the library makes tables with."""
_FACTS: Final = "strandline"
_WORDS: Final = ("batch", "digest", "watermark", "ends", "output")


Act = Callable[[Any, Any], None]
"""Something done to a table in one commit, which is given with its properties."""


class Overtaken(Exception):
    """Another commit came first, and ours may not follow it unseen."""


class DeltaLog:
    """A table, made if it is missing, as of the last look at it."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self.uri, self._options = uri, dict(options)
        self._last: dict[str, Recorded] = {}
        library = delta_library()
        with self.explained():
            there = library.DeltaTable.is_deltatable(self.uri, self._options)
            if not there:
                schema = pa.schema([(BATCH, pa.int64())])
                library.DeltaTable.create(self.uri, schema, mode="ignore", storage_options=self._options)
            self.table = library.DeltaTable(self.uri, storage_options=self._options)
            if not there:
                # Without its first record nobody could read the others.
                self._make_durable(-1)

    def refresh(self) -> None:
        with self.explained():
            self.table.update_incremental()

    def columns(self) -> Mapping[str, Any]:
        """Its columns, each with its type."""
        return pl.Schema(pa.schema(self.table.schema().to_arrow()))

    def widen(self, rows: pl.DataFrame) -> None:
        """Adds the columns that rows have and the table lacks."""
        library, known = delta_library(), self.columns()
        new = [name for name in rows.columns if name not in known]
        if new:
            schema = library.Schema.from_arrow(rows.select(new).clear().to_arrow().schema)
            with self.explained():
                self.table.alter.add_columns(schema.fields)
                self.table.update_incremental()

    def epoch(self, lineage: str) -> int | None:
        found: int | None = self.table.transaction_version(_driver(lineage))
        return found

    def latest(self, lineage: str) -> Recorded | None:
        """The entry of the last batch."""
        number = self.table.transaction_version(lineage)
        if number is None:
            return None
        known = self._last.get(lineage)
        if known is None or known.batch != number:
            known = self.find(lineage, number)
        if known is None:
            raise SinkError(
                f"the log of {self.uri} no longer tells of batch {number}",
                hint="keep the log of the table longer than the job is away (delta.logRetentionDuration)",
            )
        self._last[lineage] = known
        return known

    def find(self, lineage: str, batch: int) -> Recorded | None:
        """What the log says of a batch; None if it does not know it, or no longer."""
        newest = self.table.transaction_version(lineage)
        if newest is None or batch > newest or batch <= newest - KEPT:
            return None
        with self.explained():
            for commit in self.table.history():
                facts = json.loads(commit.get(_FACTS) or "{}")
                if facts.get("lineage") == lineage and facts.get("batch") == batch:
                    return Recorded(*(facts[word] for word in _WORDS))
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
        """Does something to the table in one commit, with the driver's epoch, and the entry if it is to be recorded.

        Raises Overtaken if since the last look another driver has claimed the table, or has written this batch: both
        name the same transaction ids, and of two such commits that do not know of each other one fails.
        """
        library = delta_library()
        ids = [library.Transaction(_driver(entry.lineage), entry.epoch if epoch is None else epoch)]
        facts: dict[str, Any] = {"lineage": entry.lineage, "epoch": ids[0].version}
        if recorded:
            ids.append(library.Transaction(entry.lineage, entry.batch))
            values = (entry.batch, entry.digest, watermark, entry.ends, entry.output)
            facts |= dict(zip(_WORDS, values, strict=True)) | {"starts": entry.starts}
        properties = library.CommitProperties({_FACTS: json.dumps(facts)}, app_transactions=ids)
        before = self.table.version()
        with self.explained():
            act(self.table, properties)
            self.table.update_incremental()
            self._make_durable(before)
        if recorded:
            self._last[entry.lineage] = Recorded(entry.batch, entry.digest, watermark, entry.ends, entry.output)

    def follow(self, name: str, number: int, act: Act) -> None:
        """Does something in one commit that follows the one of this name and number; Overtaken if another did."""
        library, before = delta_library(), self.table.version()
        if (self.table.transaction_version(name) or 0) != number:
            raise Overtaken(f"{name} is not at {number}")
        with self.explained():
            act(self.table, library.CommitProperties(app_transactions=[library.Transaction(name, number + 1)]))
            self.table.update_incremental()
            self._make_durable(before)

    def _make_durable(self, before: int) -> None:
        """On a local disk, files and names that were written since; a store of objects does so itself."""
        root = Path(self.uri)
        if "://" in self.uri or not root.is_dir():
            return
        folders = {root / "_delta_log", root}
        for version in range(before + 1, self.table.version() + 1):
            record = root / "_delta_log" / f"{version:020}.json"
            lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
            added = [root / line["add"]["path"] for line in lines if "add" in line]
            for path in [*added, record]:
                if path.exists():  # it may have been replaced by others meanwhile
                    sync_file(path)
                    folders.add(path.parent)
        for folder in folders:
            sync_folder(folder)

    def explained(self) -> AbstractContextManager[None]:
        return explained(self.uri)

    @property
    def is_plain(self) -> bool:
        """Whether a file that somebody adds to it needs nothing but to be told of: no folders by value, no rules."""
        return (
            "://" not in self.uri
            and not self.table.metadata().partition_columns
            and self.table.protocol().min_writer_version <= _WITHOUT_RULES
            and not any(field.metadata for field in self.table.schema().fields)
        )


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Faults of the library in our own words."""
    errors = delta_library().exceptions
    try:
        yield
    except errors.CommitFailedError as problem:
        raise Overtaken(str(problem)) from None
    except OSError as problem:
        raise SinkUnavailable(f"{uri} cannot be reached now", detail=_said(problem)) from None
    except errors.DeltaError as problem:
        raise SinkError(f"{uri} refused a batch", detail=_said(problem)) from None


def nothing(table: Any, properties: Any) -> None:
    """A commit without rows."""
    table.create_write_transaction([], "append", table.schema(), commit_properties=properties)


def appended(rows: pl.DataFrame, options: Mapping[str, str]) -> Act:
    """A commit that adds rows, and columns where the table lacks some."""

    def act(table: Any, properties: Any) -> None:
        delta_library().write_deltalake(
            table, rows, mode="append", schema_mode="merge", storage_options=dict(options) or None,
            commit_properties=properties,
        )  # fmt: skip

    return act


def delta_library() -> Any:
    """The library, which is asked for only where it is needed."""
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


def _said(problem: Exception) -> str:
    return str(problem).partition("\n")[0][:300]
