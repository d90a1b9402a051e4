"""Inject delivery bugs, each by name: the proof must find each of them.

A bug is a patch applied in one process at its start. The library itself has no such switch.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from strandline.checkpoint import job_folder
from strandline.connectors.delta import sink as delta_sink
from strandline.connectors.delta.table import empty_commit
from strandline.connectors.files import sink as folder_sink
from strandline.connectors.files import task_files as folder_parts
from strandline.connectors.files.manifest_log import write_new
from strandline.connectors.kafka import ledger as kafka_ledger
from strandline.connectors.kafka import sink as kafka_sink
from strandline.connectors.kafka.clients import reader as kafka_reader
from strandline.connectors.sql import sink as sql_sink
from strandline.connectors.sql import sqlite
from strandline.kernel.output import Output
from strandline.plan.endpoints import Delivery
from strandline.ports import ledger
from strandline.ports.crash_points import crash_point
from strandline.ports.ledger import LedgerEntry, Recorded, Sealed, Written
from strandline.spark.delivery import deliver as delivering

Change = Callable[[], AbstractContextManager[Any]]

OpenSql = sql_sink.OpenSql


@dataclass(frozen=True, slots=True)
class Bug:
    """An injected bug: name, description, the store that reveals it, and the patch."""

    name: str
    says: str
    store: str
    change: Change

    def made(self) -> AbstractContextManager[Any]:
        return self.change()


def _judging(change: Callable[..., Written | None]) -> Change:
    """Replace the batch decision of all sinks."""

    def made() -> AbstractContextManager[Any]:
        stack = ExitStack()
        for module in (sql_sink, folder_sink, delta_sink, kafka_sink):
            stack.enter_context(patch.object(module, "judge", change))
        return stack

    return made


def _without_epoch(entry: LedgerEntry, epoch: int | None, *known: Recorded | None, sink: str) -> Written | None:
    del epoch
    return ledger.judge(entry, entry.epoch, *known, sink=sink)


def _without_digest(
    entry: LedgerEntry, epoch: int | None, known: Recorded | None, last: Recorded | None, *, sink: str
) -> Written | None:
    same = None if known is None else replace(known, digest=entry.digest)
    return ledger.judge(entry, epoch, same, last, sink=sink)


def _up_to_the_last(
    entry: LedgerEntry, epoch: int | None, known: Recorded | None, last: Recorded | None, *, sink: str
) -> Written | None:
    if last is not None and entry.batch <= last.batch:
        return Written(fresh=False)
    return ledger.judge(entry, epoch, known, last, sink=sink)


def _gap_is_done(
    entry: LedgerEntry, epoch: int | None, known: Recorded | None, last: Recorded | None, *, sink: str
) -> Written | None:
    if last is not None and entry.batch > last.batch + 1:
        return Written(fresh=False)
    return ledger.judge(entry, epoch, known, last, sink=sink)


def _entry_after(self: Any, output: Output, entry: LedgerEntry) -> Written:
    with self._batch():
        known: Written | None = self._judge(entry)
    if known is not None:
        return known
    done: Written = self.write(output, entry)
    with self._batch():
        self._record(output, entry)
    return done


def _entry_before(self: Any, output: Output, entry: LedgerEntry) -> Written:
    marked: Written = self.mark(output, entry)
    if not marked.fresh:
        return marked
    done: Written = self.write(output, entry)
    return done


def _epoch_once(self: Any, entry: LedgerEntry, original: Callable[..., int | None] = OpenSql._epoch) -> int | None:
    if not hasattr(self, "first_epoch"):
        self.first_epoch = original(self, entry)
    found: int | None = self.first_epoch
    return found


def _claim_as_before(self: Any, lineage: str, original: Callable[..., int] = OpenSql.claim) -> int:
    mine = [lineage, self._table.name]
    with self._database.transaction():
        found = self._database.execute("SELECT epoch FROM strandline_drivers WHERE lineage = ? AND sink = ?", mine)
    return int(found[0][0]) if found else original(self, lineage)


def _find_of_anyone(self: Any, which: str, lineage: str, *values: object) -> Recorded | None:
    del lineage
    ask = f"SELECT batch, digest, watermark_ms, ends, output FROM strandline_ledger WHERE sink = ? {which}"
    found = self._database.execute(ask, [self._table.name, *values])
    return Recorded(*found[0]) if found else None


def _apart(part: str) -> Change:
    """Commit late elements or dead letters in a separate transaction before the others."""
    original = OpenSql.commit

    def commit(self: Any, output: Output, entry: LedgerEntry) -> Written:
        frame = getattr(output, part)
        if frame is not None:
            with self._batch():
                self._add(f"{self._table.name}_{part}", frame, entry.batch, widen=True)
        without: dict[str, Any] = {part: None}
        return original(self, replace(output, **without), entry)

    return lambda: patch.object(OpenSql, "commit", commit)


@contextmanager
def _each_statement_alone(self: Any) -> Iterator[None]:
    """Let a connection commit each statement alone."""
    try:
        yield
    except sqlite3.Error as problem:
        raise self._to_sink_error(problem) from None


def _only_positions(self: Any, batch: int, original: Callable[..., Sealed] = job_folder.Checkpoint.seal) -> Sealed:
    sealed = original(self, batch)
    return replace(sealed, digest=sha256(f"{sealed.starts}{sealed.ends}".encode()).hexdigest())


def _synced_late() -> AbstractContextManager[Any]:
    original, synced = job_folder.Checkpoint.note, job_folder._synced

    def note(self: Any, batch: int, *told: Any) -> None:
        synced(self._entry(batch))
        original(self, batch, *told)

    stack = ExitStack()
    stack.enter_context(patch.object(job_folder, "_synced", Path.read_bytes))
    stack.enter_context(patch.object(job_folder.Checkpoint, "note", note))
    return stack


def _offsets_synced_only(path: Path, original: Callable[[Path], bytes] = job_folder._synced) -> bytes:
    return original(path) if path.parent.name == "offsets" else path.read_bytes()


def _swallows(self: Any, act: Callable[[], Any], what: str = "") -> Any:
    del self, what
    try:
        return act()
    except delivering.UNREACHABLE:
        return Written()


def _delivering(**changed: Callable[..., Written | None]) -> Change:
    """Change the order of operations for one delivery."""
    original = delivering.deliver

    def deliver(
        sink: Any, delivery: Delivery, output: Output, entry: LedgerEntry, retry: Any, name: str = "a sink"
    ) -> Written | None:
        act = changed.get(delivery)
        if act is None:
            return original(sink, delivery, output, entry, retry, name)
        return act(sink, output, entry, retry)

    return lambda: patch.object(delivering, "deliver", deliver)


def _past_the_ledger(sink: Any, output: Output, entry: LedgerEntry, retry: Any) -> Written | None:
    try:
        done: Written = sink.commit(output, entry)
    except delivering.UNREACHABLE:
        done = retry.until_done(lambda: sink.write(output, entry))
    return done


def _rows_then_mark(sink: Any, output: Output, entry: LedgerEntry, retry: Any) -> Written | None:
    done: Written = retry.until_done(lambda: sink.write(output, entry))
    crash_point("marked")
    retry.until_done(lambda: sink.mark(output, entry))
    return done


def _mark_then_rows(sink: Any, output: Output, entry: LedgerEntry, retry: Any) -> Written | None:
    marked: Written = retry.until_done(lambda: sink.mark(output, entry))
    done: Written = retry.until_done(lambda: sink.write(output, entry)) if marked.fresh else marked
    return done


def _as_the_first() -> AbstractContextManager[Any]:
    """Assume that all sinks hold what the first one holds."""
    original = delivering.Deliverer._to_sink
    first: dict[int, Written | None] = {}

    def to_sink(self: Any, number: int, output: Output, batch: int, sealed: Sealed) -> Written | None:
        known = first.get(batch)
        if number and known is not None and not known.fresh:
            return known
        done = original(self, number, output, batch, sealed)
        if not number:
            first[batch] = done
        return done

    return patch.object(delivering.Deliverer, "_to_sink", to_sink)


def _record_before_files() -> AbstractContextManager[Any]:
    later: list[Callable[[], object]] = []
    write = write_new

    def send(self: Any, kind: str, output: Output, entry: LedgerEntry, decide: Any) -> Written:
        staged = self._stage(output, entry)
        done: Written = self._publish(kind, output, entry, staged, decide)
        crash_point("C9")
        for act in later:
            act()
        later.clear()
        return done

    stack = ExitStack()
    stack.enter_context(patch.object(folder_parts, "write_new", lambda *told: later.append(lambda: write(*told))))
    stack.enter_context(patch.object(folder_sink.OpenFolder, "_send", send))
    return stack


def _unsynced(path: Path, data: bytes, mode: int = 0o666) -> None:
    del mode
    path.write_bytes(data)


def _kafka_uncommitted() -> AbstractContextManager[Any]:
    original = kafka_reader

    @contextmanager
    def reader(servers: str, security: Any) -> Iterator[Any]:
        import confluent_kafka

        made = confluent_kafka.Consumer
        careless: Any = lambda settings: made({**settings, "isolation.level": "read_uncommitted"})  # noqa: E731
        with patch.object(confluent_kafka, "Consumer", careless), original(servers, security) as consumer:
            yield consumer

    return patch.object(kafka_ledger, "reader", reader)


def _kafka_apart(self: Any, output: Output, entry: LedgerEntry) -> Written:
    with self._producer(entry.lineage) as writer:
        known: Written | None = self._judge(entry)
        if known is not None:
            return known
        done: Written = self._send(writer, output, entry, [])
    crash_point("C10")
    with self._producer(entry.lineage) as writer:
        writer.write(self._ledger.entry(output, entry))
    return done


def _kafka_first(self: Any, output: Output, entry: LedgerEntry) -> Written:
    with self._producer(entry.lineage) as writer:
        known: Written | None = self._judge(entry)
        if known is not None:
            return known
        writer.write(self._ledger.entry(output, entry))
    with self._producer(entry.lineage) as writer:
        done: Written = self._send(writer, output, entry, [])
    crash_point("C10")
    return done


def _kafka_kept() -> AbstractContextManager[Any]:
    original = kafka_sink.OpenKafka._producer

    @contextmanager
    def producer(self: Any, lineage: str) -> Iterator[Any]:
        kept, self.kept = getattr(self, "kept", None), None
        with nullcontext(kept) if kept is not None else original(self, lineage) as writer:
            yield writer
        self.kept = writer

    return patch.object(kafka_sink.OpenKafka, "_producer", producer)


def _delta_apart(self: Any, output: Output, entry: LedgerEntry) -> Written:
    self._panes.refresh()
    known: Written | None = self._judge(entry)
    if known is not None:
        return known
    done: Written = self._send(output, entry, recorded=False)
    crash_point("C10")
    self._panes.refresh()
    self._panes.commit(empty_commit, entry, watermark=output.progress.watermark, recorded=True)
    return done


def _delta_again() -> AbstractContextManager[Any]:
    original = delta_sink.OpenDelta._add_beside

    def add(self: Any, part: str, rows: Any, entry: LedgerEntry, *, recorded: bool) -> None:
        del recorded
        original(self, part, rows, entry, recorded=False)

    return patch.object(delta_sink.OpenDelta, "_add_beside", add)


def _method(kind: type, name: str, change: Callable[..., Any]) -> Change:
    return lambda: patch.object(kind, name, change)


def _function(module: Any, name: str, change: Callable[..., Any]) -> Change:
    return lambda: patch.object(module, name, change)


_ALL: Final = (
    Bug("no-ledger", "rows are written without reading or writing a ledger entry", "sqlite",
        _method(OpenSql, "commit", OpenSql.write)),
    Bug("entry-after-rows", "the ledger row is committed in a separate transaction after the rows", "sqlite",
        _method(OpenSql, "commit", _entry_after)),
    Bug("entry-before-rows", "the entry is committed, then the rows", "sqlite",
        _method(OpenSql, "commit", _entry_before)),
    Bug("epoch-not-checked", "an old driver may write", "sqlite", _judging(_without_epoch)),
    Bug("epoch-read-once", "the epoch is read with the first batch, not in each transaction", "sqlite",
        _method(OpenSql, "_epoch", _epoch_once)),
    Bug("epoch-not-raised", "a starting driver reuses the existing epoch", "sqlite",
        _method(OpenSql, "claim", _claim_as_before)),
    Bug("digest-ignored", "a known batch id is skipped regardless of its range", "sqlite",
        _judging(_without_digest)),
    Bug("digest-of-positions", "the digest covers only positions, which for a folder are just a count", "sqlite",
        _method(job_folder.Checkpoint, "seal", _only_positions)),
    Bug("up-to-the-last", "each id up to the last one counts as written", "sqlite", _judging(_up_to_the_last)),
    Bug("gap-taken-as-done", "a batch after a gap in ids counts as written", "sqlite", _judging(_gap_is_done)),
    Bug("lineage-ignored", "entries of other jobs count too", "sqlite", _method(OpenSql, "_find", _find_of_anyone)),
    Bug("chain-not-checked", "a range need not begin where the last one ended", "sqlite",
        _function(ledger, "_check_chain", lambda *_: None)),
    Bug("nothing-synced", "the offset log is not made durable", "sqlite",
        _function(job_folder, "_synced", Path.read_bytes)),
    Bug("synced-after-commit", "the offset log is made durable after the sink's commit", "sqlite", _synced_late),
    Bug("folder-not-synced", "files are made durable, their names are not", "sqlite",
        _function(job_folder, "sync_folder", lambda _: None)),
    Bug("source-log-not-synced", "the file list behind a position is not made durable", "sqlite",
        _function(job_folder, "_synced", _offsets_synced_only)),
    Bug("unknown-swallowed", "a batch counts as written when the sink does not answer", "sqlite",
        _method(delivering.Retry, "until_done", _swallows)),
    Bug("retry-past-the-ledger", "the second attempt writes without reading the ledger", "sqlite",
        _delivering(exactly_once=_past_the_ledger)),
    Bug("rows-before-mark", "at most once: rows are written, then marked", "sqlite",
        _delivering(at_most_once=_rows_then_mark)),
    Bug("mark-before-rows", "at least once: the mark is written first and trusted", "sqlite",
        _delivering(at_least_once=_mark_then_rows)),
    Bug("second-sink-skipped", "a batch in the first sink counts as written in the second", "sqlite", _as_the_first),
    Bug("late-apart", "late elements are written outside the transaction", "sqlite", _apart("late")),
    Bug("dead-apart", "dead letters are written outside the transaction", "sqlite", _apart("dead")),
    Bug("no-transaction", "each statement is its own transaction", "sqlite",
        _method(sqlite.SqliteFile, "transaction", _each_statement_alone)),
    Bug("record-before-files", "the log names files that are not there yet", "folder", _record_before_files),
    Bug("files-not-synced", "files that the log names are not made durable", "folder",
        _function(folder_parts, "write_new", _unsynced)),
    Bug("delta-version-alone", "a known transaction id is skipped regardless of the digest", "delta",
        _judging(_without_digest)),
    Bug("delta-entry-apart", "the entry is a separate commit after the rows", "delta",
        _method(delta_sink.OpenDelta, "commit", _delta_apart)),
    Bug("delta-late-again", "late elements of a batch are appended without a duplicate check", "delta", _delta_again),
    Bug("kafka-read-uncommitted", "the ledger is read without read-committed isolation", "kafka", _kafka_uncommitted),
    Bug("kafka-entry-apart", "the entry is a separate transaction after the rows", "kafka",
        _method(kafka_sink.OpenKafka, "commit", _kafka_apart)),
    Bug("kafka-entry-first", "the entry is a separate transaction before the rows", "kafka",
        _method(kafka_sink.OpenKafka, "commit", _kafka_first)),
    Bug("kafka-producer-kept", "a producer is reused after its transaction was committed", "kafka", _kafka_kept),
)  # fmt: skip

BUGS: Final = {bug.name: bug for bug in _ALL}
