"""Look up the begin and end offsets of a slice of topics, by offset or by time."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from strandline.connectors.kafka.clients import ANSWER_WITHIN_SECONDS, admin_api, admin_of
from strandline.connectors.kafka.security import Security
from strandline.errors import InvalidStep, LostRecords, SetupError

Slice = Mapping[str, Mapping[str, tuple[int, int]]]
"""By topic and partition, the first offset and the one after the last."""

_NAMED: Final = {"earliest": -2, "latest": -1}


def slice_of(
    servers: str, security: Security, topics: tuple[str, ...], starts: str, until: str, *, pattern: bool, lossy: bool
) -> dict[str, dict[str, tuple[int, int]]]:
    """Look up the offsets between two positions: `earliest` or `latest`, a time in milliseconds, or JSON offsets."""
    admin = admin_of(servers, security)
    places = _partitions(admin, topics, pattern=pattern)
    first, last = _list_offsets(admin, places, _NAMED["earliest"]), _list_offsets(admin, places, _NAMED["latest"])
    begins, ends = _resolve(admin, places, starts, first, last), _resolve(admin, places, until, first, last)
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for place in places:
        topic, number = place
        begin, end = begins[place], ends[place]
        if begin < first[place] and not lossy:
            raise LostRecords(
                f"{first[place] - begin} records at the beginning of the slice were deleted",
                detail=f"{topic}-{number} begins at offset {first[place]}, and the slice at {begin}",
                hint="kafka(…, on_lost='continue') skips them; otherwise begin later",
            )
        if max(begin, end) > last[place]:
            raise InvalidStep(
                f"offset {max(begin, end)} of {topic}-{number} does not exist yet",
                detail=f"it ends at {last[place]} now",
                hint="wait until it exists, or use an earlier one",
            )
        begin = max(begin, first[place])
        found.setdefault(topic, {})[str(number)] = (begin, max(begin, end))
    return found


def _partitions(admin: Any, topics: tuple[str, ...], *, pattern: bool) -> list[tuple[str, int]]:
    from confluent_kafka import KafkaException

    try:
        known = admin.list_topics(timeout=ANSWER_WITHIN_SECONDS).topics
    except KafkaException as problem:
        raise SetupError(
            "the broker does not respond", detail=problem.args[0].str(), hint="check its address"
        ) from None
    names = sorted(name for name in known if re.fullmatch(topics[0], name)) if pattern else [*topics]
    missing = [name for name in names if name not in known or known[name].error is not None]
    if missing:
        raise SetupError(f"there is no topic {missing[0]}", hint="check its name, or create it")
    return [(name, number) for name in names for number in sorted(known[name].partitions)]


def _resolve(
    admin: Any,
    places: list[tuple[str, int]],
    position: str,
    first: Mapping[tuple[str, int], int],
    last: Mapping[tuple[str, int], int],
) -> dict[tuple[str, int], int]:
    """Resolve a position to an offset for each partition. A time after the last record is the end."""
    if position in _NAMED:
        return dict(first if position == "earliest" else last)
    if position.isdigit():
        by_time = _list_offsets(admin, places, int(position))
        return {place: last[place] if at < 0 else at for place, at in by_time.items()}
    offsets = json.loads(position)
    found = {}
    for topic, number in places:
        at = offsets.get(topic, {}).get(str(number))
        if at is None:
            raise InvalidStep(f"there is no offset for {topic}-{number}", hint="give one for every partition")
        ends = {_NAMED["earliest"]: first, _NAMED["latest"]: last}.get(at)
        found[topic, number] = int(at) if ends is None else ends[topic, number]
    return found


def _list_offsets(admin: Any, places: list[tuple[str, int]], what: int) -> dict[tuple[str, int], int]:
    """List offsets: the first, the end of what is committed, or the first at or after a time."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

    specs = admin_api().OffsetSpec
    spec = {-2: specs.earliest, -1: specs.latest}.get(what, lambda: specs.for_timestamp(what))()
    futures = admin.list_offsets(
        {TopicPartition(*place): spec for place in places},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=ANSWER_WITHIN_SECONDS,
    )
    try:
        return {
            (place.topic, place.partition): answer.result(ANSWER_WITHIN_SECONDS).offset
            for place, answer in futures.items()
        }
    except KafkaException as problem:
        raise SetupError(
            "the broker does not respond", detail=problem.args[0].str(), hint="check its address"
        ) from None
