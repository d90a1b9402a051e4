"""Dead letters in a topic: a record each, under its id; the newest of an id counts, and one without a value drops it.

So a topic may be compacted: a letter that was sent back stands there with its mark, in place of the one without.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from strandline.connectors.kafka.clients import Writer, admin_of, ends, partitions, reader, records_from
from strandline.connectors.kafka.encode_rows import Headers
from strandline.connectors.kafka.security import Security
from strandline.connectors.kafka.topic_admin import described
from strandline.errors import InvalidStep, SetupError, SinkUnavailable
from strandline.kernel.dead_letters import CUT, NAMES
from strandline.letters.envelope_json import from_json, to_json
from strandline.letters.store import KEPT, NEW, REDRIVE, REDRIVEN, STATE, Marks, Redrive, in_order, refuse_overlap
from strandline.plan.endpoints import fields_of
from strandline.ports.ledger import LedgerEntry

BEGUN: Final = b"strandline-redrive"
"""The key of the redrive that has begun."""
BATCH: Final = "strandline-batch"
"""The header with the batch that brought a record."""
_AROUND: Final = 120
"""Bytes that the protocol adds to a record, at most, besides its headers' own."""
_ID, _MARK = 40, 200
"""Those of a letter's key, and of the mark that it gets when it is sent back."""
_USUALLY: Final = 1_000_000
_SLACK_MS: Final = 3_600_000
"""How far a broker's clock may be from the driver's."""


@dataclass(frozen=True, slots=True)
class DeadTopic:
    """A topic, and how it is reached."""

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
                raise SetupError(f"there is no topic {self.topic}", hint="make it; letters are not sent to nowhere")
        return OpenTopic(self, lineage)

    def letters(self) -> "TopicLetters":
        """What is in the topic."""
        return TopicLetters(self)


def dead_topic(topic: str, *, servers: str, mask: Iterable[str] = (), security: Security | None = None) -> DeadTopic:
    """Dead letters into a topic: `write(sink, dead=dead_topic("scores.dead", servers="localhost:9092"))`."""
    if not topic:
        raise InvalidStep("dead letters into a topic without a name", hint='write dead_topic("scores.dead", …)')
    return DeadTopic(topic, servers, fields_of(mask), security or Security())


class OpenTopic:
    """A topic that an output of a job writes to, in transactions. Whoever had this job before can no longer write."""

    def __init__(self, ask: DeadTopic, lineage: str) -> None:
        self._ask, self._lineage, self._name = ask, lineage, f"strandline-dead-{lineage}-{ask.topic}"
        self._largest = _largest(ask)
        self._writer: Writer | None = self._opened()
        self._batch: int | None = None
        self._put: set[bytes] = set()
        """What of this batch is there, as far as it is known."""
        self._unsure: int | None = None
        """The batch of which more may be there: the first after a start."""

    def _opened(self) -> Writer:
        # What a topic takes at once holds for several records together too.
        together = {"batch.size": max(1, min(1_000_000, self._largest))}
        return Writer(self._ask.servers, self._ask.security, self._name, together)

    def put(self, letters: pl.DataFrame, entry: LedgerEntry) -> None:
        batch = f"{self._lineage}/{entry.batch}/{entry.digest}".encode()
        if self._batch != entry.batch:
            self._batch, self._put = entry.batch, set()
        if self._writer is None:
            self._writer = self._opened()
        # After a start, or a transaction whose end was not heard of, this batch may be there already.
        if self._unsure is None:
            self._unsure = entry.batch
        if batch in self._put or (self._unsure == entry.batch and self._knows(batch, letters)):
            self._put.add(batch)
            return
        try:
            about = [(BATCH, batch)]
            self._writer.write([
                {"topic": self._ask.topic, "key": letter["id"].encode(), "headers": about,
                 "value": fitting(letter, about, self._largest)}
                for letter in letters.rename(NAMES).iter_rows(named=True)
            ])  # fmt: skip
        except SinkUnavailable:
            self._writer, self._unsure = None, None
            raise
        self._put.add(batch)

    def _knows(self, batch: bytes, letters: pl.DataFrame) -> bool:
        from confluent_kafka import TopicPartition

        topic, since = self._ask.topic, max(int(letters["@seen"][0]) - _SLACK_MS, 0)
        with reader(self._ask.servers, self._ask.security) as consumer:
            asked = [TopicPartition(topic, number, since) for number in partitions(consumer, topic)]
            told = consumer.offsets_for_times(asked, 30)
            starts = {topic: {str(each.partition): each.offset for each in told if each.offset >= 0}}
            found = records_from(consumer, starts, ends(admin_of(self._ask.servers, self._ask.security), [topic]))
            return any((BATCH, batch) in (record.headers() or ()) for record in found)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _largest(ask: DeadTopic) -> int:
    """The bytes that the topic takes in a record; the usual ones where we may not ask."""
    try:
        return described(admin_of(ask.servers, ask.security), (ask.topic,))[ask.topic].largest
    except SinkUnavailable:
        return _USUALLY


def fitting(letter: Mapping[str, Any], about: Headers, largest: int) -> bytes:
    """A letter as a topic takes it, with room for a mark: of one too long the beginning, told as bytes or text.

    Its length and hash are those of the whole.
    """
    value = to_json(letter)
    if around(about) + _MARK + _ID + len(value) <= largest:
        return value
    raw = letter["raw"]
    others = len(to_json({**letter, "raw": None})) + around(about) + _MARK + _ID
    # A byte may take six signs as JSON.
    return to_json({**letter, "raw": None if raw is None else raw[: max(0, (largest - others) // 6)], "masked": CUT})


def around(headers: Headers) -> int:
    """The bytes of a record besides its key and its value."""
    return _AROUND + sum(len(name) + len(said) + 10 for name, said in headers)


@dataclass(slots=True)
class _Fold:
    """What the records of a topic come to."""

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
            # What is marked stays so, should a job write the letter once more.
            self.letters[letter["id"]] = {**letter, REDRIVE: letter.get(REDRIVE) or known.get(REDRIVE)}


@dataclass(frozen=True, slots=True)
class TopicLetters:
    """A topic with letters, asked from outside of the job."""

    ask: DeadTopic

    @property
    def name(self) -> str:
        return self.ask.name

    def read(self) -> pl.DataFrame:
        rows = [
            {**{name: each.get(name) for name in KEPT}, STATE: NEW if each[REDRIVE] is None else REDRIVEN}
            for each in self._fold().letters.values()
        ]
        return in_order(pl.DataFrame(rows, schema=KEPT))

    def begun(self) -> Redrive | None:
        return self._fold().begun

    def begin(self, redrive: Redrive) -> None:
        facts = {"id": redrive.id, "letters": redrive.letters, "before": redrive.before}
        with self._writer() as writer:
            fold = self._fold()
            gone = {id_ for id_, each in fold.letters.items() if each[REDRIVE] is not None}
            refuse_overlap(redrive, fold.begun, gone, self.name)
            self._write(writer, [(BEGUN, json.dumps(facts).encode())])

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:
        return Marks(self.ask.servers, self.ask.topic, tuple(self._marked(redrive, sent, self._fold())))

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        with self._writer() as writer:
            fold = self._fold()
            over: list[tuple[bytes, bytes | None]] = []
            if fold.begun is not None and fold.begun.id == redrive.id:
                over.append((BEGUN, None))
            self._write(writer, [*self._marked(redrive, sent, fold), *over])

    def drop(self, ids: Sequence[str]) -> int:
        with self._writer() as writer:
            letters = self._fold().letters
            known = [each for each in ids if each in letters]
            self._write(writer, [(each.encode(), None) for each in known])
        return len(known)

    def close(self) -> None:
        pass

    def _marked(self, redrive: Redrive, sent: Sequence[str], fold: _Fold) -> list[tuple[bytes, bytes]]:
        """Letters with their mark, of those that have none yet."""
        mine = [fold.letters[each] for each in sent if each in fold.letters and fold.letters[each][REDRIVE] is None]
        return [(each["id"].encode(), to_json({**each, REDRIVE: redrive.id})) for each in mine]

    @contextmanager
    def _writer(self) -> Iterator[Writer]:
        """What is read while it is there holds until it writes, or it cannot: another of its name ends it."""
        writer = Writer(self.ask.servers, self.ask.security, f"strandline-letters-{self.ask.topic}")
        try:
            yield writer
        finally:
            writer.close()

    def _write(self, writer: Writer, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        if records:
            writer.write([{"topic": self.ask.topic, "key": key, "value": value} for key, value in records])

    def _fold(self) -> _Fold:
        fold, topic = _Fold(), self.ask.topic
        with reader(self.ask.servers, self.ask.security) as consumer:
            found = partitions(consumer, topic)
            if not found:
                raise SetupError(f"there is no topic {topic}", hint="check its name and the servers")
            until = ends(admin_of(self.ask.servers, self.ask.security), [topic])
            for record in records_from(consumer, {topic: dict.fromkeys(map(str, found), 0)}, until):
                where = f"record {record.offset()} of {topic}-{record.partition()}"
                fold.add(record.key(), record.value(), where)
        return fold
