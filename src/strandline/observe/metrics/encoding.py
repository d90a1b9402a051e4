"""Encode the numbers of a batch as compressed JSON. Unknown and empty fields are left out.

The numbers of one batch are too short to compress well, so the compressor gets a dictionary of common words. The
dictionary is part of the stored format: to change it is a new version of the tables.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

from strandline.model.counts import Counts, InputCounts
from strandline.model.histograms import Histogram
from strandline.observe.metrics.metrics import BatchMetrics, HotKey, PartitionMetrics, StepMetrics

_LEVEL: Final = 6
_DICTIONARY: Final = (
    b'"late":"dead_letters":"refused":0,"retries":0,"budget":0."ended":true,"reasons":{"lateness":[[0,"hot":[{"step":'
    b'"step 2","key":"{\\"","count":1,"share":0.0}],"busy":{"read":0.0,"prepare":0.0,"step":0.0,"state":0.0},'
    b'"stages":{"source":0.00,"plan":0.0,"read":0.0,"prepare":0.0,"state":0.0,"step":0.0,"shuffle":0.0,"deliver":0.0,'
    b'"commit":0.0},"latency":{"element":[["late":[["early":[["on_time":[[5"partition_count":"lag_records":'
    b'"lag_seconds":0.0,"idle":true,"finished":true,"partitions":[{"name":"0","event_time":17000,"watermark":17000,'
    b'"heard":17000,"idle":false,"finished":false},{"name":"lag_records":0,"lag_seconds":0.0},{"name":"held_by":"'
    b'"out":{"element":"early":"late":"on_time":"steps":[{"name":"step 1","watermark":17000,"output_watermark":17000,'
    b'"rows":"bytes":"counts":{"read":0,"contributed":0,"late":0,"dead":0,"filtered":0},"groups":[0,0,0,0]}],'
    b'{"batch":1,"at":17000,"clock":17000,"batches":1,"seconds":1.0,"counts":{"read":0,"contributed":0,"late":0,'
    b'"dead":0,"filtered":0},"out":{"retractions":0,"watermark":17000'
)
"""The most frequent words last: they get the shortest references."""
_DIGITS: Final = 4

Value = TypeVar("Value")


def to_bytes(metrics: BatchMetrics) -> bytes:
    text = json.dumps(to_plain(metrics), separators=(",", ":"), ensure_ascii=False)
    packer = zlib.compressobj(_LEVEL, wbits=-15, zdict=_DICTIONARY)
    return packer.compress(text.encode()) + packer.flush()


def from_bytes(data: bytes) -> BatchMetrics:
    return from_plain(json.loads(zlib.decompressobj(wbits=-15, zdict=_DICTIONARY).decompress(data)))


def to_plain(metrics: BatchMetrics) -> dict[str, Any]:
    """Convert to plain values for JSON, without empty ones."""
    return {name: each for name, each in _plain(metrics).items() if each is not False and each not in ({}, [])}


def _plain(value: Any) -> Any:
    """Round floats, and leave out unknown values."""
    if isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, Histogram):
        return [list(each) for each in value.counts]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    known = ((name, getattr(value, name)) for name in value.__dataclass_fields__)
    return {name: _plain(each) for name, each in known if each is not None}


def from_plain(plain: Mapping[str, Any]) -> BatchMetrics:
    known = dict(plain)
    known["counts"] = _build(Counts, known.get("counts", {}))
    known["partitions"] = tuple(_build(PartitionMetrics, each) for each in known.get("partitions", ()))
    known["steps"] = tuple(_step(each) for each in known.get("steps", ()))
    known["hot"] = tuple(_build(HotKey, each) for each in known.get("hot", ()))
    known["latency"] = {name: _histogram(each) for name, each in known.get("latency", {}).items()}
    known["lateness"] = _histogram(known.get("lateness", ()))
    return _build(BatchMetrics, known)


def _step(plain: Mapping[str, Any]) -> StepMetrics:
    counts = _build(Counts, plain.get("counts", {}))
    inputs = {role: _build(InputCounts, each) for role, each in plain.get("inputs", {}).items()}
    return _build(StepMetrics, {**plain, "counts": counts, "groups": tuple(plain.get("groups", ())), "inputs": inputs})


def _histogram(counts: Any) -> Histogram:
    return Histogram(tuple((bucket, many) for bucket, many in counts))


def _build(kind: type[Value], plain: Mapping[str, Any]) -> Value:
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: each for name, each in plain.items() if name in names})
