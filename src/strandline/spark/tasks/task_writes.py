"""Rows that tasks put where a sink keeps them: what comes to the driver tells of them, and shows a few.

Elements that go straight to an output are as many as came. Brought to the driver they cross to Spark and back, and are
in its memory all at once; see docs/decisions/0031.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from strandline.kernel.blocks.block import Block
from strandline.kernel.output import Part
from strandline.ports.sinks import OpenSink, Stamp, TaskWrittenSink, Writer
from strandline.spark.batch_properties import Batch

Writers = Mapping[int, Writer]
"""By output, where its rows can be put."""

NOBODY: Final[Writers] = {}
SOME: Final = "some"
_OUT: Final = "out"
_FACT: Final = "parts"
_SHOWN: Final = 1_000


def writers_of(opened: Sequence[OpenSink]) -> dict[int, Writer]:
    """Of the sinks at work, those that tasks can write to."""
    found = {number: sink.writer() for number, sink in enumerate(opened) if isinstance(sink, TaskWrittenSink)}
    return {number: writer for number, writer in found.items() if writer is not None}


def put_away(blocks: list[tuple[int, Block]], writers: Writers, batch: Batch) -> list[tuple[int, Block]]:
    """The blocks of a task, told of in place of rows that were put where they stay."""
    return [(to, _put(block, writers, batch)) for to, block in blocks] if writers and batch.stamps else blocks


def _put(block: Block, writers: Writers, batch: Batch) -> Block:
    frames, told = dict(block.frames), {}
    for name, frame in block.frames.items():
        kind, _, output = name.partition(":")
        writer = writers.get(int(output)) if kind == _OUT else None
        part = None if writer is None else writer.put(frame, batch.stamps[int(output)])
        if part is not None:
            told[output] = [part.rows, part.sums, part.told]
            frames[f"{SOME}:{output}"] = frames.pop(name).gather_every(1 + frame.height // _SHOWN)
    return Block(frames, {**block.facts, _FACT: told}) if told else block


def parts_of(facts: Mapping[str, Any]) -> Iterable[tuple[int, Part]]:
    """What a block tells of rows that are put away, by output."""
    for output, (rows, (plain, mixed), told) in facts.get(_FACT, {}).items():
        yield int(output), Part(rows, (plain, mixed), told)


def sweep(opened: Sequence[OpenSink], stamps: Sequence[Stamp]) -> None:
    """A batch is played again from its beginning: what its tasks have put counts for nobody."""
    for sink, stamp in zip(opened, stamps, strict=True):
        if isinstance(sink, TaskWrittenSink):
            sink.swept(stamp)
