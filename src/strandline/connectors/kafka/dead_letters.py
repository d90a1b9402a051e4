"""Store dead letters in a topic, one record per letter, keyed by its id.

The newest record of an id counts, and a tombstone drops the letter. So the topic may be compacted: a letter that was
redriven is written again with its mark, in place of the unmarked record.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from strandline.connectors.kafka.clients import Writer, admin_of, ends, partitions, reader, records_from
from strandline.connectors.kafka.encode_rows import Headers
from strandline.connectors.kafka.security import Security, server_list
from strandline.connectors.kafka.topic_admin import describe_topics
from strandline.errors import InvalidStep, SetupError, SinkUnavailable
from strandline.kernel.dead_letters import CUT, NAMES
from strandline.letters.envelope_json import from_json, to_json
from strandline.letters.store import KEPT, NEW, REDRIVE, REDRIVEN, STATE, Marks, Redrive, in_order, refuse_overlap
from strandline.model.arguments import checked
from strandline.plan.endpoints import fields_of
from strandline.ports.ledger import LedgerEntry

BEGUN: Final = b"strandline-redrive"
"""The key of the record that holds the redrive in progress."""
BATCH: Final = "strandline-batch"
"""The header that names the batch which wrote a record."""
_OVERHEAD: Final = 120
"""The most bytes that the protocol adds to a record, besides those of its headers."""
_ID, _MARK = 40, 200
"""The bytes of a letter's key, and of the mark that is added when it is redriven."""
_DEFAULT_LARGEST: Final = 1_000_000
_SLACK_MS: Final = 3_600_000
"""The largest assumed difference between a broker's clock and the driver's."""


@dataclass(frozen=True, slots=True)
class DeadTopic:
    """A dead-letter topic and its connection settings."""

    topic: str
    servers: str
    mask: tuple[str, ...] = ()
    security: Security = Security()

    @property
    def name(self) -> str:
        return f"topic {self.topic}"

    def open_letters(self, lineage: str) -> "OpenTopic":
        with reader(self.servers, self.security) as consumer:
            if not partitions(consumer, self.topic):
                raise SetupError(f"there is no topic {self.topic}", hint="create it; the dead-letter topic must exist")
        return OpenTopic(self, lineage)

    def letters(self) -> "TopicLetters":
        """Open the letters in the topic for reading and redriving."""
        return TopicLetters(self)


@checked
def dead_topic(
    topic: str, *, servers: str | Sequence[str], mask: Iterable[str] = (), security: Security | None = None
) -> DeadTopic:
    """Send dead letters to a topic: `write(sink, dead=dead_topic("scores.dead", servers="localhost:9092"))`."""
    if not topic:
        raise InvalidStep("the dead-letter topic has no name", hint='write dead_topic("scores.dead", …)')
    return DeadTopic(topic, server_list(servers), fields_of(mask), security or Security())


class OpenTopic:
    """Dead-letter topic that one output of a job writes to in transactions; opening it fences the job's earlier
    driver."""

    def __init__(self, target: DeadTopic, lineage: str) -> None:
        self._target, self._lineage, self._name = target, lineage, f"strandline-dead-{lineage}-{target.topic}"
        self._largest = _largest(target)
        self._writer: Writer | None = self._open_writer()
        self._batch: int | None = None
        self._written: set[bytes] = set()
        """Digests of this batch's letters that are known to be in the topic."""
        self._unsure: int | None = None
        """The batch of which more letters may be in the topic: the first after a start."""

    def _open_writer(self) -> Writer:
        # A topic's size limit applies to a producer batch of several records as well.
        together = {"batch.size": max(1, min(1_000_000, self._largest))}
        return Writer(self._target.servers, self._target.security, self._name, together)

    def put(self, letters: pl.DataFrame, entry: LedgerEntry) -> None:
        batch = f"{self._lineage}/{entry.batch}/{entry.digest}".encode()
        if self._batch != entry.batch:
            self._batch, self._written = entry.batch, set()
        if self._writer is None:
            self._writer = self._open_writer()
        # After a start, or a transaction with an unknown outcome, this batch may be in the topic already.
        if self._unsure is None:
            self._unsure = entry.batch
        if batch in self._written or (self._unsure == entry.batch and self._is_in_topic(batch, letters)):
            self._written.add(batch)
            return
        try:
            about = [(BATCH, batch)]
            self._writer.write([
                {"topic": self._target.topic, "key": letter["id"].encode(), "headers": about,
                 "value": encode_to_fit(letter, about, self._largest)}
                for letter in letters.rename(NAMES).iter_rows(named=True)
            ])  # fmt: skip
        except SinkUnavailable:
            self._writer, self._unsure = None, None
            raise
        self._written.add(batch)

    def _is_in_topic(self, batch: bytes, letters: pl.DataFrame) -> bool:
        from confluent_kafka import TopicPartition

        topic, since = self._target.topic, max(int(letters["@seen"][0]) - _SLACK_MS, 0)
        with reader(self._target.servers, self._target.security) as consumer:
            positions = [TopicPartition(topic, number, since) for number in partitions(consumer, topic)]
            offsets = consumer.offsets_for_times(positions, 30)
            starts = {topic: {str(each.partition): each.offset for each in offsets if each.offset >= 0}}
            found = records_from(consumer, starts, ends(admin_of(self._target.servers, self._target.security), [topic]))
            return any((BATCH, batch) in (record.headers() or ()) for record in found)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _largest(target: DeadTopic) -> int:
    """The largest record that the topic accepts, in bytes; the default where the broker does not answer."""
    try:
        return describe_topics(admin_of(target.servers, target.security), (target.topic,))[target.topic].largest
    except SinkUnavailable:
        return _DEFAULT_LARGEST


def encode_to_fit(letter: Mapping[str, Any], about: Headers, largest: int) -> bytes:
    """Encode a letter to fit a topic with room for a redrive mark; a record that is too large is cut.

    Length and hash stay those of the whole record.
    """
    value = to_json(letter)
    if overhead(about) + _MARK + _ID + len(value) <= largest:
        return value
    raw = letter["raw"]
    others = len(to_json({**letter, "raw": None})) + overhead(about) + _MARK + _ID
    # A byte may take six characters as JSON.
    return to_json({**letter, "raw": None if raw is None else raw[: max(0, (largest - others) // 6)], "masked": CUT})


def overhead(headers: Headers) -> int:
    """The bytes of a record besides its key and its value."""
    return _OVERHEAD + sum(len(name) + len(value) + 10 for name, value in headers)


@dataclass(slots=True)
class _FoldedTopic:
    """Current letters and redrive, folded from the records of a topic."""

    letters: dict[str, dict[str, Any]] = field(default_factory=dict)
    begun: Redrive | None = None

    def add(self, key: bytes | None, value: bytes | None, where: str) -> None:
        if key == BEGUN:
            facts = None if value is None else json.loads(value)
            self.begun = None if facts is None else Redrive(facts["id"], tuple(facts["letters"]), facts["before"])
        elif key is not None and value is None:
            self.letters.pop(key.decode(), None)
        elif value is not None:
            letter = from_json(value, where)
            known = self.letters.get(letter["id"], {})
            # A redriven letter stays marked, even if the job writes the letter again.
            self.letters[letter["id"]] = {**letter, REDRIVE: letter.get(REDRIVE) or known.get(REDRIVE)}


@dataclass(frozen=True, slots=True)
class TopicLetters:
    """The letters of a topic, read and changed from outside of the job."""

    target: DeadTopic

    @property
    def name(self) -> str:
        return self.target.name

    def read(self) -> pl.DataFrame:
        rows = [
            {**{name: each.get(name) for name in KEPT}, STATE: NEW if each[REDRIVE] is None else REDRIVEN}
            for each in self._read_topic().letters.values()
        ]
        return in_order(pl.DataFrame(rows, schema=KEPT))

    def begun(self) -> Redrive | None:
        return self._read_topic().begun

    def begin(self, redrive: Redrive) -> None:
        facts = {"id": redrive.id, "letters": redrive.letters, "before": redrive.before}
        with self._writer() as writer:
            fold = self._read_topic()
            gone = {id_ for id_, each in fold.letters.items() if each[REDRIVE] is not None}
            refuse_overlap(redrive, fold.begun, gone, self.name)
            self._write(writer, [(BEGUN, json.dumps(facts).encode())])

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:
        return Marks(self.target.servers, self.target.topic, tuple(self._marked(redrive, sent, self._read_topic())))

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        with self._writer() as writer:
            fold = self._read_topic()
            ended: list[tuple[bytes, bytes | None]] = []
            if fold.begun is not None and fold.begun.id == redrive.id:
                ended.append((BEGUN, None))
            self._write(writer, [*self._marked(redrive, sent, fold), *ended])

    def drop(self, ids: Sequence[str]) -> int:
        with self._writer() as writer:
            letters = self._read_topic().letters
            known = [each for each in ids if each in letters]
            self._write(writer, [(each.encode(), None) for each in known])
        return len(known)

    def close(self) -> None:
        pass

    def _marked(self, redrive: Redrive, sent: Sequence[str], fold: _FoldedTopic) -> list[tuple[bytes, bytes]]:
        """Encode the letters that are not marked yet, with the redrive's mark."""
        unmarked = [fold.letters[each] for each in sent if each in fold.letters and fold.letters[each][REDRIVE] is None]
        return [(each["id"].encode(), to_json({**each, REDRIVE: redrive.id})) for each in unmarked]

    @contextmanager
    def _writer(self) -> Iterator[Writer]:
        """Yield a producer that protects a read-then-write: it cannot commit once another producer of its name has
        begun."""
        writer = Writer(self.target.servers, self.target.security, f"strandline-letters-{self.target.topic}")
        try:
            yield writer
        finally:
            writer.close()

    def _write(self, writer: Writer, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        if records:
            writer.write([{"topic": self.target.topic, "key": key, "value": value} for key, value in records])

    def _read_topic(self) -> _FoldedTopic:
        fold, topic = _FoldedTopic(), self.target.topic
        with reader(self.target.servers, self.target.security) as consumer:
            found = partitions(consumer, topic)
            if not found:
                raise SetupError(f"there is no topic {topic}", hint="check the topic name and the servers")
            until = ends(admin_of(self.target.servers, self.target.security), [topic])
            for record in records_from(consumer, {topic: dict.fromkeys(map(str, found), 0)}, until):
                where = f"record {record.offset()} of {topic}-{record.partition()}"
                fold.add(record.key(), record.value(), where)
        return fold
