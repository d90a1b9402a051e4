"""Start a broker and a registry for a benchmark and write corpora as topics, once.

A corpus has two files per batch, and a topic two partitions with one file of each batch, in order. Both are equally
long, so Spark takes the same number of records from each, and the batches are the same.
"""

import hashlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import polars as pl

import strandline as sl
from benchmarks.corpus import FILES, Batch, Corpus, batch_of, flush_of, table_of
from benchmarks.feeds import AVRO, EVENTS, Form, Topic
from strandline.formats.registry.subjects import Kind, Schema
from strandline.ports.codecs import Encoder
from strandline.services import topics
from strandline.services.catalogue import service
from strandline.services.service import Service

_AT_ONCE: Final = 10_000
_SUBJECT: Final = "event"
PATIENCE: Final = 120.0
PRODUCER: Final = {
    # One request at a time keeps the order of a partition; large ones make the log like a busy topic's.
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "enable.idempotence": True,
    "queue.buffering.max.messages": 1_000_000,
    "log_level": 3,
}


@dataclass(slots=True)
class Broker:
    """Broker and registry in a folder, running during a measurement."""

    home: Path

    def __enter__(self) -> Self:
        for each in (self._kafka, self._registry):
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._registry, self._kafka):
            each.stop()

    @property
    def _kafka(self) -> Service:
        return service("kafka", self.home, leashed=True)

    @property
    def _registry(self) -> Service:
        return service("registry", self.home, leashed=True)

    @property
    def session(self) -> int:
        """Process session of the broker, so that its CPU is measured separately."""
        return self._kafka.pid or 0

    @property
    def servers(self) -> str:
        """Address of the broker."""
        return self._kafka.address

    def digests(self) -> dict[str, str]:
        """SHA-256 of each topic's records."""
        facts = sorted((self.home / "topics").glob("*.json"))
        return {path.stem: json.loads(path.read_text())["sha256"] for path in facts}

    def topic(self, corpus: Corpus, form: Form) -> Topic:
        """Return the topic of a corpus; fill it if no complete one exists."""
        facts = self.home / "topics" / f"{corpus.name}-{form}.json"
        servers, url = self._kafka.address, self._registry.address
        number = sl.registry(url).client().register(_SUBJECT, Schema(Kind.AVRO, AVRO))
        told: dict[str, Any] = json.loads(facts.read_text()) if facts.exists() else {}
        if told.get("schema") != number or not _is_whole(servers, told["topic"], corpus):
            # A new name, so that leftovers of an interrupted benchmark are not read.
            name = f"{corpus.name}-{form}-{secrets.token_hex(4)}"
            digest = _fill(servers, name, corpus, _encoder(form, url))
            told = {**asdict(corpus), "schema": number, "topic": name, "sha256": digest}
            facts.parent.mkdir(parents=True, exist_ok=True)
            facts.write_text(json.dumps(told, indent=1) + "\n")
        return Topic(told["topic"], servers, form, corpus.per_batch, url)


def _encoder(form: Form, url: str) -> Encoder:
    if form is Form.JSON:
        return sl.json(EVENTS)
    return sl.avro(AVRO, registry=sl.registry(url), subject=_SUBJECT)


def parts_of(corpus: Corpus) -> Iterator[tuple[int, Batch]]:
    """Return the records of each partition, in order. All get the flush, since each has its own watermark."""
    for number in range(corpus.batches):
        whole = batch_of(corpus, number)
        for part in range(FILES):
            share = slice(part, None, FILES)
            yield part, Batch(whole.key[share], whole.value[share], whole.at[share])
    for part in range(FILES):
        yield part, flush_of(corpus)


def _fill(servers: str, name: str, corpus: Corpus, encoder: Encoder) -> str:
    """Write all records and return the SHA-256 of their bytes."""
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra

    if corpus.thin > 1:
        raise ValueError("partitions of different lengths would be read in other batches")
    topics.create_topics(servers, topics.Topic(name, FILES, {"retention.ms": "-1"}))
    producer = Producer({"bootstrap.servers": servers, **PRODUCER})
    digest = hashlib.sha256()
    for part, batch in parts_of(corpus):
        values = encoder.encode(pl.DataFrame(table_of(batch))).to_list()
        for start in range(0, len(values), _AT_ONCE):
            for value in values[start : start + _AT_ONCE]:
                producer.produce(name, value, partition=part)
                digest.update(value)
            producer.poll(0)
        # One batch after the other, so that no queue overflows.
        if producer.flush(PATIENCE):
            raise TimeoutError(f"the broker did not take {name} within {PATIENCE:.0f} seconds")
    return digest.hexdigest()


def _is_whole(servers: str, name: str, corpus: Corpus) -> bool:
    from confluent_kafka import Consumer, KafkaException, TopicPartition  # noqa: PLC0415 - an extra

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "strandline-bench"})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(name, part), timeout=10)[1] for part in range(FILES)]
    except KafkaException:
        return False
    finally:
        consumer.close()
    return ends == [corpus.batches * corpus.per_batch // FILES + 1] * FILES
