"""What a batch says, from all tasks and key groups: for each output its rows, and how far each keyed step has come."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from strandline.kernel.blocks.block import Block
from strandline.kernel.blocks.small_frames import stacked
from strandline.kernel.output import Counts, Output, Part
from strandline.kernel.watermarks import NEVER, Progress, progress_from_facts
from strandline.spark.tasks.task_metrics import Measured, asked_for
from strandline.spark.tasks.task_writes import SOME, parts_of


@dataclass(frozen=True, slots=True)
class StepOutput:
    """A keyed step after a batch: its progress, what it forwards, the windows it keeps."""

    progress: Progress = field(default_factory=Progress)
    output_watermark: int = NEVER
    rows: int = 0
    size: int = 0
    """Bytes that it keeps."""
    groups: tuple[int, ...] = ()
    """Elements that each key group took in this batch."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """A whole batch."""

    frames: Mapping[str, pl.DataFrame]
    steps: Mapping[int, StepOutput]
    counts: Mapping[str, Counts]
    """By the keyed step or the output that elements were offered to; their sum is the job's."""
    clock: int
    drained: bool
    ended: Mapping[int, frozenset[str]]
    """By scan, the partitions that have ended, where nothing is kept of it."""
    measured: Measured = field(default_factory=Measured)
    parts: Mapping[int, tuple[Part, ...]] = field(default_factory=dict)
    """By output, rows that tasks have put where its sink keeps them."""

    @property
    def everyone(self) -> Counts:
        """What came from the sources, and what became of it in all steps."""
        return sum(self.counts.values(), Counts())

    def output(self, number: int, progress: Progress, rows: int) -> Output:
        """What one output is to hold."""
        panes, late, dead, some = (self.frames.get(f"{name}:{number}") for name in ("out", "late", "dead", SOME))
        parts = self.parts.get(number, ())
        return Output(panes, late, dead, progress, self.everyone, progress.watermark, rows, parts, some)


def gather(blocks: Iterable[Block]) -> Gathered:
    """The blocks of a batch as one."""
    frames: dict[str, list[pl.DataFrame]] = {}
    steps: dict[int, StepOutput] = {}
    counts: dict[str, Counts] = {}
    ended: dict[int, frozenset[str]] = {}
    parts: dict[int, tuple[Part, ...]] = {}
    clock, drained = NEVER, False
    blocks = [*blocks]
    for block in blocks:
        facts = block.facts
        for name, frame in block.frames.items():
            frames.setdefault(name, []).append(frame)
        for output, part in parts_of(facts):
            parts[output] = (*parts.get(output, ()), part)
        for name, told in facts.get("counts", {}).items():
            counts[name] = counts.get(name, Counts()) + Counts(**told)
        if "step" in facts:
            progress = progress_from_facts(facts["progress"])
            steps[facts["step"]] = _joined(steps.get(facts["step"]), progress, facts)
            clock = max(clock, progress.clock)
        else:
            clock, drained = max(clock, facts["clock"]), drained or facts["drain"]
        if "scan" in facts:
            ended[facts["scan"]] = ended.get(facts["scan"], frozenset()) | {*facts["ended"]}
    whole = {name: stacked(each) for name, each in frames.items()}
    return Gathered(whole, steps, counts, clock, drained, ended, asked_for(blocks) or Measured(), parts)


def _joined(known: StepOutput | None, progress: Progress, facts: Mapping[str, Any]) -> StepOutput:
    """Key groups of a step have the same progress, since all fold the same control rows."""
    taken = sum(told["contributed"] for told in facts["counts"].values())
    mine = StepOutput(progress, facts["output_watermark"], facts["rows"], facts["size"], (taken,))
    if known is None:
        return mine
    return StepOutput(
        progress,
        min(known.output_watermark, mine.output_watermark),
        known.rows + mine.rows,
        known.size + mine.size,
        known.groups + mine.groups,
    )
