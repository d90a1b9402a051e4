"""Measure how far a job is behind its topics, in records and in seconds, with a verdict that needs no thresholds.

The verdict uses the last batches of the job's own offset log: whether a partition with records left is being read, and
whether it is read faster than it grows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from strandline.connectors.kafka.security import Security

_ANSWER_WITHIN_SECONDS: Final = 10
_STOPPED_AFTER: Final = 5
"""A job counts as stopped when it has been silent for this many times its longest batch."""

Offsets = Mapping[str, Mapping[str, int]]


class Verdict(StrEnum):
    """Whether a partition is being read and keeps up."""

    OK = "ok"
    WARNING = "warning"
    """The partition is read, and falls further behind."""
    STALLED = "stalled"
    """The job runs, and does not read the partition although it has records."""
    STOPPED = "stopped"
    """The job does not run, and the partition has records."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The job's offsets at the end of a batch."""

    clock: int
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition: the job's offset, the end of the log, and the lag between them in records and seconds."""

    partition: str
    committed: int
    end: int
    records: int
    seconds: float | None
    """How long ago the next record to read was written; None if there is none."""
    verdict: Verdict


def judge(positions: Sequence[tuple[int, int]], ends: tuple[int, int], now: int) -> Verdict:
    """Judge one partition from (clock, offset) pairs of the last batches, and from its log end then and now."""
    first_end, end = ends
    (_, then), (clock, committed) = positions[0], positions[-1]
    if committed >= end:
        return Verdict.OK
    steps = [later - earlier for (earlier, _), (later, _) in pairwise(positions)]
    if now - clock > _STOPPED_AFTER * max([*steps, 1000]):
        return Verdict.STOPPED
    if len(positions) > 1 and committed == then:
        return Verdict.STALLED
    if len(positions) > 1 and end - committed > first_end - then and then < first_end:
        return Verdict.WARNING
    return Verdict.OK


def lag(servers: str, security: Security, history: Sequence[Moment], now: int) -> list[PartitionLag]:
    """Measure the lag of every partition that the job knows."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "strandline-looks", "enable.auto.commit": False, "log_level": 0}
        | security.to_librdkafka()
    )
    try:
        return [
            _partition(consumer, topic, number, history, now)
            for topic, each in history[-1].offsets.items()
            for number in each
        ]
    finally:
        consumer.close()


def _partition(consumer: Any, topic: str, number: str, history: Sequence[Moment], now: int) -> PartitionLag:
    from confluent_kafka import TopicPartition

    place = TopicPartition(topic, int(number))
    _, end = consumer.get_watermark_offsets(place, _ANSWER_WITHIN_SECONDS)
    positions = [
        (moment.clock, moment.offsets[topic][number]) for moment in history if number in moment.offsets.get(topic, {})
    ]
    # The offset of this time is the log end when the first of these batches ended.
    position = TopicPartition(topic, int(number), positions[0][0])
    (then,) = consumer.offsets_for_times([position], _ANSWER_WITHIN_SECONDS)
    first_end = end if then.offset < 0 else then.offset
    committed = positions[-1][1]
    seconds = _age(consumer, TopicPartition(topic, int(number), committed), now) if committed < end else None
    verdict = judge(positions, (first_end, end), now)
    return PartitionLag(f"{topic}-{number}", committed, end, max(end - committed, 0), seconds, verdict)


def _age(consumer: Any, place: Any, now: int) -> float | None:
    """How long ago the record at a partition's position was written, in seconds."""
    consumer.assign([place])
    try:
        record = consumer.poll(_ANSWER_WITHIN_SECONDS)
    finally:
        consumer.unassign()
    if record is None or record.error() is not None:
        return None
    _, written = record.timestamp()
    return max(now - int(written), 0) / 1000
