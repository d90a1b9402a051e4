"""Let tasks write rows to a sink's storage; the driver gets a description and a sample.

An output without a keyed step has as many rows as its input. Through the driver, they would cross to Spark and back and
be in its memory at once (decision 0031).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from strandline.execution.batch import Batch
from strandline.kernel.blocks.block import Block
from strandline.kernel.output import Part
from strandline.ports.sinks import OpenSink, Stamp, TaskWrittenSink, Writer

Writers = Mapping[int, Writer]
"""The writer of each output that tasks can write to."""

NO_WRITERS: Final[Writers] = {}
SOME: Final = "some"
_OUT: Final = "out"
_FACT: Final = "parts"
_SHOWN: Final = 1_000


def writers_of(opened: Sequence[OpenSink]) -> dict[int, Writer]:
    """Return the writers of open sinks that accept writes of tasks."""
    found = {number: sink.writer() for number, sink in enumerate(opened) if isinstance(sink, TaskWrittenSink)}
    return {number: writer for number, writer in found.items() if writer is not None}


def write_rows(blocks: list[tuple[int, Block]], writers: Writers, batch: Batch) -> list[tuple[int, Block]]:
    """Write the rows of a task's blocks, and replace them by descriptions of what was written."""
    return [(to, _put(block, writers, batch)) for to, block in blocks] if writers and batch.stamps else blocks


def _put(block: Block, writers: Writers, batch: Batch) -> Block:
    frames, parts = dict(block.frames), {}
    for name, frame in block.frames.items():
        kind, _, output = name.partition(":")
        writer = writers.get(int(output)) if kind == _OUT else None
        part = None if writer is None else writer.put(frame, batch.stamps[int(output)])
        if part is not None:
            parts[output] = [part.rows, part.sums, part.told]
            frames[f"{SOME}:{output}"] = frames.pop(name).gather_every(1 + frame.height // _SHOWN)
    return Block(frames, {**block.facts, _FACT: parts}) if parts else block


def parts_of(facts: Mapping[str, Any]) -> Iterable[tuple[int, Part]]:
    """Return the parts that a block describes, by output."""
    for output, (rows, (plain, mixed), part) in facts.get(_FACT, {}).items():
        yield int(output), Part(rows, (plain, mixed), part)


def sweep(opened: Sequence[OpenSink], stamps: Sequence[Stamp]) -> None:
    """Remove what tasks of a failed attempt have written. The batch runs again from its start."""
    for sink, stamp in zip(opened, stamps, strict=True):
        if isinstance(sink, TaskWrittenSink):
            sink.swept(stamp)
