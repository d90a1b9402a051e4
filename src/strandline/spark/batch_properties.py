"""Send the facts of a batch to its tasks as a local property: clock, watermarks, partitions, files."""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import astuple
from functools import lru_cache
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
        "partitions": _packed(batch.partitions),
        "files": _packed(batch.files),
        "measured": batch.measured,
        "heads": {str(number): at for number, at in batch.heads.items()},
        "stamps": [astuple(stamp) for stamp in batch.stamps],
        "pins": batch.pins,
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
    return Batch() if text is None else _parsed(text)


@lru_cache(maxsize=1)
def _parsed(text: str) -> Batch:
    """Parse the property. All tasks and key groups of a batch have the same one."""
    facts: dict[str, Any] = json.loads(text)
    partitions = {number: tuple(names) for number, names in _unpacked(facts["partitions"]).items()}
    horizons, heads = ({int(number): at for number, at in facts[name].items()} for name in ("horizons", "heads"))
    stamps = tuple(Stamp(*each) for each in facts["stamps"])
    files = _unpacked(facts["files"])
    return Batch(facts["clock"], horizons, partitions, files, facts["measured"], heads, stamps, facts["pins"])


def _packed(names: Mapping[int, Any]) -> str:
    """Compress paths and partitions: properties are sent with every task, and names resemble each other."""
    facts = json.dumps({str(number): each for number, each in names.items()})
    return base64.b85encode(zlib.compress(facts.encode(), 1)).decode() if names else ""


def _unpacked(packed: str) -> dict[int, Any]:
    if not packed:
        return {}
    facts: dict[str, Any] = json.loads(zlib.decompress(base64.b85decode(packed)))
    return {int(number): each for number, each in facts.items()}


def task_number() -> int:
    """Return the number of this task in its stage."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
