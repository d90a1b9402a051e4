"""Write a corpus as a keyed topic: the event's key determines the partition, its time is the record's timestamp."""

import json
import secrets
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

import strandline as sl
from benchmarks.broker import PATIENCE, PRODUCER, Broker
from benchmarks.corpus import FILES, Batch, Corpus, batch_of, flush_of, table_of
from benchmarks.feeds import EVENTS, Form, Topic
from strandline.services import topics


def keyed(corpus: Corpus, broker: Broker) -> Topic:
    """Return the keyed topic of a corpus; fill it if missing."""
    facts = broker.home / "keyed" / f"{corpus.name}.json"
    told: dict[str, Any] = json.loads(facts.read_text()) if facts.exists() else {}
    if told.get("servers") != broker.servers:
        told = {**asdict(corpus), "servers": broker.servers, "topic": f"keyed-{corpus.name}-{secrets.token_hex(4)}"}
        _fill(broker.servers, told["topic"], corpus)
        facts.parent.mkdir(parents=True, exist_ok=True)
        facts.write_text(json.dumps(told, indent=1) + "\n")
    return Topic(told["topic"], broker.servers, Form.JSON, corpus.per_batch, "")


def _fill(servers: str, name: str, corpus: Corpus) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra

    topics.create_topics(servers, topics.Topic(name, FILES, {"retention.ms": "-1"}))
    producer = Producer({"bootstrap.servers": servers, **PRODUCER})
    for number in range(corpus.batches + 1):
        batch = batch_of(corpus, number) if number < corpus.batches else _flushes(corpus)
        values = sl.json(EVENTS).encode(pl.DataFrame(table_of(batch))).to_list()
        parts = batch.key // corpus.thin % FILES if number < corpus.batches else np.arange(FILES)
        for value, key, at, part in zip(values, batch.key.tolist(), batch.at.tolist(), parts.tolist(), strict=True):
            producer.produce(name, value, key=str(key), partition=part, timestamp=at)
        if producer.flush(PATIENCE):
            raise TimeoutError(f"the broker did not take {name} within {PATIENCE:.0f} seconds")


def _flushes(corpus: Corpus) -> Batch:
    """Return one flush record per partition, since each has its own time."""
    flush = flush_of(corpus)
    return Batch(*(np.repeat(column, FILES) for column in (flush.key, flush.value, flush.at)))
