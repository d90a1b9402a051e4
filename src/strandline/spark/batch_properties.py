"""What the driver tells every task of a batch: its clock, and the watermark before it, as local properties."""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Final

from pyspark import SparkContext, TaskContext

from strandline.ports.sinks import Stamp

_PROPERTY: Final = "strandline.batch"
_CALLED: Final = "callSite.short"


@dataclass(frozen=True, slots=True)
class Batch:
    """The clock in milliseconds, and the watermark before the batch of each keyed step, by number, where it is known.

    A watermark here is an upper bound, by which tasks may combine elements that are surely taken.
    """

    clock: int | None = None
    horizons: Mapping[int, int] = field(default_factory=dict)
    partitions: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Of each scan, by number, the partitions it is known to have, heard or not."""
    files: Mapping[int, str] = field(default_factory=dict)
    """The files of the batch, by the numbers under which their names cross."""
    measured: bool = False
    """Whether tasks are to tell what they saw on the way."""
    heads: Mapping[int, int] = field(default_factory=dict)
    """For that: the highest event time that every partition of a step had reached before the batch, by its number."""
    stamps: tuple[Stamp, ...] = ()
    """For each output, as whom tasks write to its sink."""


def tell(context: SparkContext, batch: Batch) -> None:
    """Tasks of a batch see it, since the batch runs inside the call that delivers it."""
    said = {
        "clock": batch.clock,
        "horizons": {str(number): at for number, at in batch.horizons.items()},
        "partitions": {str(number): names for number, names in batch.partitions.items()},
        "files": _packed(batch.files),
        "measured": batch.measured,
        "heads": {str(number): at for number, at in batch.heads.items()},
        "stamps": [astuple(stamp) for stamp in batch.stamps],
    }
    context.setLocalProperty(_PROPERTY, json.dumps(said))


def called(context: SparkContext) -> None:
    """Says whose this thread's jobs are, which PySpark forgets with every action: to find out, Spark looks through its
    own stack for every RDD that it makes."""
    context.setLocalProperty(_CALLED, "a batch of Strandline")


def told() -> Batch:
    """What this task was told; nothing outside of a task, or where nobody delivers."""
    context = TaskContext.get()
    said = None if context is None else context.getLocalProperty(_PROPERTY)
    if said is None:
        return Batch()
    facts: dict[str, Any] = json.loads(said)
    partitions = {int(number): tuple(names) for number, names in facts["partitions"].items()}
    horizons, heads = ({int(number): at for number, at in facts[name].items()} for name in ("horizons", "heads"))
    stamps = tuple(Stamp(*each) for each in facts["stamps"])
    return Batch(facts["clock"], horizons, partitions, _unpacked(facts["files"]), facts["measured"], heads, stamps)


def _packed(files: Mapping[int, str]) -> str:
    """Properties travel with every task, and paths are much alike."""
    said = json.dumps({str(number): name for number, name in files.items()})
    return base64.b85encode(zlib.compress(said.encode(), 1)).decode() if files else ""


def _unpacked(packed: str) -> dict[int, str]:
    if not packed:
        return {}
    said: dict[str, str] = json.loads(zlib.decompress(base64.b85decode(packed)))
    return {int(number): name for number, name in said.items()}


def task_number() -> int:
    """The number of this task among those of its stage."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
