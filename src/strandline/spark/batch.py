"""What the driver tells every task of a batch: its clock, and the watermark before it, as local properties."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark import SparkContext, TaskContext

_PROPERTY: Final = "strandline.batch"


@dataclass(frozen=True, slots=True)
class Batch:
    """The clock in milliseconds, and the watermark before the batch of each keyed step, by number, where it is known.

    A watermark here is an upper bound, by which tasks may combine elements that are surely taken.
    """

    clock: int | None = None
    horizons: Mapping[int, int] = field(default_factory=dict)
    partitions: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Of each scan, by number, the partitions it is known to have, heard or not."""


def tell(context: SparkContext, batch: Batch) -> None:
    """Tasks of a batch see it, since the batch runs inside the call that delivers it."""
    said = {
        "clock": batch.clock,
        "horizons": {str(number): at for number, at in batch.horizons.items()},
        "partitions": {str(number): names for number, names in batch.partitions.items()},
    }
    context.setLocalProperty(_PROPERTY, json.dumps(said))


def told() -> Batch:
    """What this task was told; nothing outside of a task, or where nobody delivers."""
    context = TaskContext.get()
    said = None if context is None else context.getLocalProperty(_PROPERTY)
    if said is None:
        return Batch()
    facts: dict[str, Any] = json.loads(said)
    partitions = {int(number): tuple(names) for number, names in facts["partitions"].items()}
    return Batch(facts["clock"], {int(number): at for number, at in facts["horizons"].items()}, partitions)


def task_number() -> int:
    """The number of this task among those of its stage."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
