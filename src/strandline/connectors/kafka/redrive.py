"""Redrive dead letters: write their records back to their topics in one transaction, under their old keys.

Headers name the redrive and the letters.
"""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from strandline.connectors.kafka.clients import Writer, admin_of, ends, reader, records_from
from strandline.connectors.kafka.security import Security
from strandline.letters.store import Marks, Redrive
from strandline.ports.crash_points import crash_point

REDRIVEN: Final = "strandline-redriven"
"""The header that names the redrive of a record."""
LETTER: Final = "strandline-letter"
"""The header that names the letters that a record had become."""

_SEEK_BEYOND: Final = 500
"""Records to read through rather than seek past."""


def not_redrivable(servers: str, security: Security, letters: pl.DataFrame) -> dict[str, str]:
    """Explain which letters cannot be redriven: a masked or cut letter needs its record still in the topic."""
    masked = letters.filter(pl.col("masked").is_not_null())
    found = originals(servers, security, masked)
    why = "the letter's bytes are masked or cut, and its record is no longer in the topic"
    return {letter["id"]: why for letter in masked.iter_rows(named=True) if _position(letter) not in found}


def end_positions(servers: str, security: Security, letters: pl.DataFrame) -> dict[str, dict[str, int]]:
    topics = {partition.rpartition("-")[0] for partition in letters["source_partition"]}
    return ends(admin_of(servers, security), sorted(topics))


def redrive_records(
    servers: str, security: Security, letters: pl.DataFrame, redrive: Redrive, before: Any, marks: Marks | None
) -> tuple[str, ...]:  # fmt: skip
    """Write all records and marks in one transaction.

    The producer first fences an unfinished redrive of this id. Records that it committed before are found in the topic,
    and not written again.
    """
    writer = Writer(servers, security, f"strandline-redrive-{redrive.id}")
    try:
        if arrived := _committed_letters(servers, security, redrive, before):
            return tuple(id_ for id_ in letters["id"] if id_ in arrived)
        found = originals(servers, security, letters)
        sent: dict[tuple[str, int, int], dict[str, Any]] = {}
        accepted: list[str] = []
        for letter in letters.iter_rows(named=True):
            place = _position(letter)
            if letter["masked"] is not None and place not in found:
                continue
            accepted.append(letter["id"])
            record = sent.setdefault(place, _record(letter, found.get(place), redrive))
            record["headers"].append((LETTER, letter["id"].encode()))
        kept: list[dict[str, Any]] = []
        if marks is not None and marks.servers == servers:
            sent_keys = {id_.encode() for id_ in accepted}
            kept = [
                {"topic": marks.topic, "key": key, "value": value} for key, value in marks.records if key in sent_keys
            ]
        writer.write([*sent.values(), *kept], lambda: crash_point("R2"))
        return tuple(accepted)
    finally:
        writer.close()


def _position(letter: Mapping[str, Any]) -> tuple[str, int, int]:
    topic, _, number = letter["source_partition"].rpartition("-")
    return topic, int(number), letter["source_offset"]


def _record(letter: Mapping[str, Any], original: Any, redrive: Redrive) -> dict[str, Any]:
    """Restore the record as far as it is still in the topic; its timestamp may be its event time."""
    topic, number, _ = _position(letter)
    value = letter["raw"] if letter["masked"] is None else original.value()
    record: dict[str, Any] = {"topic": topic, "partition": number, "value": value}
    headers = [(REDRIVEN, redrive.id.encode())]
    if original is not None and original.value() == value:
        record |= {"key": original.key(), "timestamp": max(original.timestamp()[1], 0)}
        ours = (REDRIVEN, LETTER)
        headers = [*(each for each in original.headers() or () if each[0] not in ours), *headers]
    return {**record, "headers": headers}


def _committed_letters(servers: str, security: Security, redrive: Redrive, before: Any) -> frozenset[str]:
    """Find the letters that a redrive of this id has committed since these end offsets."""
    header = (REDRIVEN, redrive.id.encode())
    with reader(servers, security) as consumer:
        return frozenset(
            value.decode()
            for record in records_from(consumer, before, ends(admin_of(servers, security), before))
            if header in (record.headers() or ())
            for name, value in record.headers()
            if name == LETTER
        )


def originals(servers: str, security: Security, letters: pl.DataFrame) -> dict[tuple[str, int, int], Any]:
    """Read the original records of letters, by topic, partition and offset, as far as they are still in the topics."""
    wanted: dict[tuple[str, int], list[int]] = {}
    for letter in letters.iter_rows(named=True):
        topic, number, offset = _position(letter)
        wanted.setdefault((topic, number), []).append(offset)
    found: dict[tuple[str, int, int], Any] = {}
    if not wanted:
        return found
    with reader(servers, security) as consumer:
        for (topic, number), offsets in wanted.items():
            for record in _read_at(consumer, topic, number, sorted(set(offsets))):
                found[topic, number, record.offset()] = record
    return found


def _read_at(consumer: Any, topic: str, number: int, offsets: list[int]) -> list[Any]:
    """Read the records at these offsets; deleted ones are skipped."""
    from confluent_kafka import TopicPartition

    found: list[Any] = []
    position: int | None = None
    for offset in offsets:
        if position is not None and position > offset:
            continue
        if position is None or offset - position > _SEEK_BEYOND:
            consumer.assign([TopicPartition(topic, number, offset)])
        while position is None or position <= offset:
            record = consumer.poll(10)
            if record is None or record.error() is not None:
                return found
            position = record.offset() + 1
            if record.offset() == offset:
                found.append(record)
    consumer.unassign()
    return found
