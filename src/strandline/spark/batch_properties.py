"""Send the facts of a batch to its tasks as a local property: clock, watermarks, partitions, files."""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any, Final

from pyspark import SparkContext, TaskContext

from strandline.execution.batch import Batch
from strandline.ports.sinks import Stamp

_PROPERTY: Final = "strandline.batch"
_CALL_SITE: Final = "callSite.short"


def send(context: SparkContext, batch: Batch) -> None:
    """Set the property. Tasks inherit it, because the batch runs inside the call that delivers it."""
    facts = {
        "clock": batch.clock,
        "horizons": {str(number): at for number, at in batch.horizons.items()},
        "partitions": {str(number): names for number, names in batch.partitions.items()},
        "files": _packed(batch.files),
        "measured": batch.measured,
        "heads": {str(number): at for number, at in batch.heads.items()},
        "stamps": [astuple(stamp) for stamp in batch.stamps],
    }
    context.setLocalProperty(_PROPERTY, json.dumps(facts))


def name_jobs(context: SparkContext) -> None:
    """Name this thread's jobs, which PySpark forgets with every action. Without a name Spark walks the stack for each
    RDD."""
    context.setLocalProperty(_CALL_SITE, "a batch of Strandline")


def current_batch() -> Batch:
    """Return the facts of this task's batch; an empty batch outside of a task, or without a delivery."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_PROPERTY)
    if text is None:
        return Batch()
    facts: dict[str, Any] = json.loads(text)
    partitions = {int(number): tuple(names) for number, names in facts["partitions"].items()}
    horizons, heads = ({int(number): at for number, at in facts[name].items()} for name in ("horizons", "heads"))
    stamps = tuple(Stamp(*each) for each in facts["stamps"])
    return Batch(facts["clock"], horizons, partitions, _unpacked(facts["files"]), facts["measured"], heads, stamps)


def _packed(files: Mapping[int, str]) -> str:
    """Compress the paths: properties are sent with every task, and paths resemble each other."""
    facts = json.dumps({str(number): name for number, name in files.items()})
    return base64.b85encode(zlib.compress(facts.encode(), 1)).decode() if files else ""


def _unpacked(packed: str) -> dict[int, str]:
    if not packed:
        return {}
    facts: dict[str, str] = json.loads(zlib.decompress(base64.b85decode(packed)))
    return {int(number): name for number, name in facts.items()}


def task_number() -> int:
    """Return the number of this task in its stage."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
