"""The numbers of a batch as bytes, and back: compact JSON, compressed. What a version does not know it leaves out."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final, TypeVar

from strandline.model.counts import Counts
from strandline.model.histograms import Histogram
from strandline.observe.metrics import BatchMetrics, HotKey, PartitionMetrics, StepMetrics

_LEVEL: Final = 6
_DIGITS: Final = 4

Value = TypeVar("Value")


def to_bytes(metrics: BatchMetrics) -> bytes:
    told = json.dumps(to_plain(metrics), separators=(",", ":"), ensure_ascii=False)
    return zlib.compress(told.encode(), _LEVEL)


def from_bytes(data: bytes) -> BatchMetrics:
    return from_plain(json.loads(zlib.decompress(data)))


def to_plain(metrics: BatchMetrics) -> dict[str, Any]:
    """Plain values, for JSON: what is empty is left out."""
    told = asdict(metrics)
    told["latency"] = {name: each.counts for name, each in metrics.latency.items()}
    told["lateness"] = metrics.lateness.counts
    return {name: each for name, each in _short(told).items() if each is not False and each not in ({}, [])}


def _short(value: Any) -> Any:
    """Without digits that nobody reads, and without what is not known."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    return value


def from_plain(told: Mapping[str, Any]) -> BatchMetrics:
    known = dict(told)
    known["counts"] = _made(Counts, known.get("counts", {}))
    known["partitions"] = tuple(_made(PartitionMetrics, each) for each in known.get("partitions", ()))
    known["steps"] = tuple(_step(each) for each in known.get("steps", ()))
    known["hot"] = tuple(_made(HotKey, each) for each in known.get("hot", ()))
    known["latency"] = {name: _histogram(each) for name, each in known.get("latency", {}).items()}
    known["lateness"] = _histogram(known.get("lateness", ()))
    return _made(BatchMetrics, known)


def _step(told: Mapping[str, Any]) -> StepMetrics:
    counts = _made(Counts, told.get("counts", {}))
    return _made(StepMetrics, {**told, "counts": counts, "groups": tuple(told.get("groups", ()))})


def _histogram(counts: Any) -> Histogram:
    return Histogram(tuple((bucket, many) for bucket, many in counts))


def _made(kind: type[Value], told: Mapping[str, Any]) -> Value:
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: each for name, each in told.items() if name in names})
