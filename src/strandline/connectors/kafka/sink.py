"""Write panes, late elements, dead letters and the ledger to Kafka topics, in one transaction per batch.

Each batch has a producer of its own. Under the job's transactional id, it aborts whatever an earlier producer has left
open. Then the ledger is read with read-committed isolation, the batch is judged against it, and written. A request
still in flight from an earlier batch cannot end a later transaction, because it comes from a fenced producer. Such
requests cannot be detected: when a connection breaks, the client retries by itself and reports nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl

from strandline.connectors.kafka.clients import ProducerFenced, Writer
from strandline.connectors.kafka.dead_letters import BATCH, encode_to_fit, overhead
from strandline.connectors.kafka.encode_rows import (
    Format,
    Headers,
    encode_or_refuse,
    in_format,
    pane_headers,
    refuse_unknown,
)
from strandline.connectors.kafka.ledger import Ledger, Record
from strandline.connectors.kafka.security import Security
from strandline.connectors.kafka.topic_admin import Topics, prepare_topics
from strandline.errors import Fenced, InvalidStep, SinkUnavailable
from strandline.formats.json.write_rows import as_json
from strandline.formats.refused_rows import Refused, refused_letters
from strandline.formats.sink_columns import names_beside, to_sink_rows
from strandline.kernel.blocks.block import END, START
from strandline.kernel.blocks.python_values import python_rows
from strandline.kernel.dead_letters import NAMES
from strandline.kernel.latest_per_key import latest_rows
from strandline.kernel.output import Output
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.ledger import LedgerEntry, Recorded, Written, judge

FENCED_ATTEMPTS: Final = 3
"""How often in a row a batch may find its producer fenced although no other driver has claimed the sink."""
_WINDOW: Final = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class Place:
    """Topics, connection settings, and the contents of a record."""

    servers: str
    topics: Topics
    by_key: bool
    key: tuple[str, ...] | Format | None
    value: Format | None
    security: Security
    options: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Batch:
    """Records to send, and rows that are refused."""

    records: list[Record] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


class OpenKafka:
    """An open Kafka sink, used from one thread at a time."""

    def __init__(self, place: Place, output: Deliver, name: str) -> None:
        self._place, self._name, self._keys, self._number = place, name, output.keys, output.number
        self._mask = () if output.dead is None else output.dead.mask
        self._refuse_keyless(output)
        self._found = prepare_topics(place.servers, place.security, place.topics)
        self._ledger = Ledger(place.servers, place.security, place.topics.ledger, output.number)
        self._fenced_in_a_row = 0
        self._letter_sink: Callable[[pl.DataFrame, LedgerEntry], None] | None = None

    def refused_to(self, keep: Callable[[pl.DataFrame, LedgerEntry], None]) -> None:
        self._letter_sink = keep

    def _refuse_keyless(self, output: Deliver) -> None:
        key = self._place.key.columns if isinstance(self._place.key, Format) else self._place.key
        if not self._place.by_key:
            return
        if key is None and output.keys is None:
            raise InvalidStep(
                f"{self._name} writes elements by key, and no key is given", hint='name the columns: key=["id"]'
            )
        if key is not None and output.keys is not None and not {name.rstrip("_") for name in key} & set(_WINDOW):
            raise InvalidStep(
                f"{self._name} keys its records by {', '.join(key)}, without the window",
                detail="a late pane of an earlier window would replace the record of a later one",
                hint="add window_start to the key, or write to a database",
            )

    def claim(self, lineage: str) -> int:
        with self._producer(lineage) as writer:
            epoch = (self._ledger.read(lineage).epoch or 0) + 1
            writer.write([self._ledger.claim(lineage, epoch)])
            return epoch

    def latest(self, lineage: str) -> Recorded | None:
        return self._ledger.read(lineage).last

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        with self._producer(entry.lineage) as writer:
            known = self._judge(entry)
            done = known or self._send(writer, output, entry, self._ledger.entry(output, entry))
        crash_point("C10")
        return done

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        with self._producer(entry.lineage) as writer:
            known = self._judge(entry)
            if known is None:
                writer.write(self._ledger.entry(output, entry))
        return known or Written()

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        with self._producer(entry.lineage) as writer:
            epoch = self._ledger.read(entry.lineage).epoch
            judge(replace(entry, starts=None), epoch, None, None, sink=self._name)
            done = self._send(writer, output, entry, [])
        crash_point("C10")
        return done

    def close(self) -> None:
        self._ledger.close()

    def _judge(self, entry: LedgerEntry) -> Written | None:
        job = self._ledger.read(entry.lineage)
        return judge(entry, job.epoch, job.batches.get(entry.batch), job.last, sink=self._name)

    @contextmanager
    def _producer(self, lineage: str) -> Iterator[Writer]:
        """Yield a new producer. If it is fenced, a newer driver may have claimed the sink; the next attempt reads that
        in the ledger."""
        place = self._place
        name = f"strandline-{lineage}-{self._number}-{place.topics.rows}"
        largest = [each.largest for each in self._found.values()]
        limits: dict[str, str | int] = {
            "message.max.bytes": max(1_000, *largest),
            "batch.size": max(1, min(1_000_000, *largest)),
            "partitioner": "murmur2_random",  # the partition that Java's producers choose for the same key
            "queue.buffering.max.messages": 1_000_000,
        }
        writer: Writer | None = None
        try:
            writer = Writer(place.servers, place.security, name, {**limits, **dict(place.options)})
            yield writer
            self._fenced_in_a_row = 0
        except SinkUnavailable:
            # A consumer whose broker went away may never receive anything again.
            self._ledger.close()
            raise
        except ProducerFenced as problem:
            self._fenced_in_a_row += 1
            if self._fenced_in_a_row >= FENCED_ATTEMPTS:
                raise Fenced(
                    "another process writes under this job's transactional id", detail=name, hint="stop one of them"
                ) from None
            raise SinkUnavailable(
                f"{self._name} was fenced by another producer in the middle of a batch", detail=str(problem)
            ) from None
        finally:
            if writer is not None:
                writer.close()

    def _send(self, writer: Writer, output: Output, entry: LedgerEntry, ledger: Sequence[Record]) -> Written:
        """Write rows, late elements, dead letters and ledger entries, all or none. Refused rows become dead letters."""
        batch = self._batch(output, entry)
        letters = self._letters(output, entry, batch.refused)
        writer.write([*batch.records, *letters, *ledger], lambda: crash_point("C9"))
        return Written(refused=len(batch.refused))

    def _batch(self, output: Output, entry: LedgerEntry) -> _Batch:
        batch, about = _Batch(), [(BATCH, f"{entry.lineage}/{entry.batch}/{entry.digest}".encode())]
        if output.panes is not None and output.panes.height:
            self._add_panes(batch, output.panes, entry.batch, about)
        if output.late is not None and output.late.height:
            late = output.late
            own = self._keys is not None and set(self._keys) <= set(late.columns)
            keys = as_json(late, entry.batch, self._keys) if own else None
            self._add(batch, self._place.topics.late, late, as_json(late, entry.batch), keys, about, entry.batch)
        return batch

    def _add_panes(self, batch: _Batch, panes: pl.DataFrame, number: int, about: Headers) -> None:
        key, gone = self._key_of(panes), panes.clear()
        if self._place.by_key:
            names = names_beside(panes.columns)
            own = {public: name for name, public in names.items() if name in panes.columns}
            latest = latest_rows(panes, [own.get(name, name) for name in key])
            panes, gone = latest.rows, latest.gone
        form, topic = self._place.value, self._place.topics.rows
        panes, values, refused = encode_or_refuse(
            panes,
            lambda rows: as_json(rows, number) if form is None else in_format(rows, number, form, self._name),
            number,
        )
        batch.refused += refused
        if panes.height:
            self._add(batch, topic, panes, values, self._keys_for(panes, key, number), about, number)
        if gone.height:
            # Retracted rows without a successor are written as tombstones, so that compaction drops their keys.
            none = pl.Series([None] * gone.height, dtype=pl.Binary)
            self._add(batch, topic, gone, none, self._keys_for(gone, key, number), about, number)

    def _key_of(self, panes: pl.DataFrame) -> tuple[str, ...]:
        """The columns of the records' key, by their public names."""
        configured = self._place.key
        if configured is None:
            names = names_beside(panes.columns)
            window = tuple(names[each] for each in (START, END) if each in panes.columns)
            return (*(self._keys or ()), *(window if self._place.by_key else ()))
        key = configured.columns if isinstance(configured, Format) else configured
        refuse_unknown(key, panes, "it needs the key columns {}, which the rows do not have", self._name)
        return key

    def _keys_for(self, rows: pl.DataFrame, key: tuple[str, ...], number: int) -> pl.Series | None:
        if isinstance(self._place.key, Format):
            return in_format(rows, number, self._place.key, self._name)
        return as_json(rows, number, key) if key else None

    def _add(
        self, batch: _Batch, topic: str, frame: pl.DataFrame, values: pl.Series, keys: pl.Series | None,
        about: Headers, number: int,
    ) -> None:  # fmt: skip
        """Add rows as records. Refuse rows that would make the broker reject the whole transaction."""
        headers, largest = pane_headers(frame, about), self._found[topic].largest
        sizes = values.bin.size().fill_null(0) + (0 if keys is None else keys.bin.size().fill_null(0))
        record_sizes = sizes + max(map(overhead, {id(each): each for each in headers}.values()))
        long, bare = record_sizes > largest, pl.repeat(False, frame.height, eager=True)
        if "compact" in self._found[topic].policy:
            bare = pl.repeat(True, frame.height, eager=True) if keys is None else keys.is_null()
        for place in (long | bare).arg_true():
            reason = f"message size too large: {record_sizes[place]} bytes, and {topic} takes {largest}"
            reason = (
                reason if long[place] else f"invalid record: {topic} is compacted, and accepts no record without a key"
            )
            batch.refused.append(Refused(python_rows(to_sink_rows(frame[place], number).rows)[0], reason))
        parts = zip(values, [None] * frame.height if keys is None else keys, headers, long | bare, strict=True)
        batch.records += [
            {"topic": topic, "key": key, "value": value, "headers": row_headers}
            for value, key, row_headers, refuse in parts
            if not refuse
        ]

    def _letters(self, output: Output, entry: LedgerEntry, refused: list[Refused]) -> list[Record]:
        """Dead letters of the batch and of the rows that were refused here; a letter that is too large is cut."""
        about = [(BATCH, f"{entry.lineage}/{entry.batch}/{entry.digest}".encode())]
        clock, topic = output.progress.clock, self._place.topics.dead
        own = None
        if refused:
            own = refused_letters(refused, sink=self._name, lineage=entry.lineage, clock=clock, mask=self._mask)
            if self._letter_sink is not None:
                self._letter_sink(own, entry)
                own = None
        records = []
        for frame in (output.dead, own):
            for letter in [] if frame is None else frame.rename(NAMES, strict=False).iter_rows(named=True):
                key = None if letter.get("id") is None else letter["id"].encode()
                value = encode_to_fit(letter, about, self._found[topic].largest)
                records.append({"topic": topic, "key": key, "value": value, "headers": about})
        return records
