"""Gather the output blocks of a batch: rows by output, and the progress of each keyed step. Runs on the driver."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from strandline.execution.task_metrics import Measured, collected
from strandline.execution.task_writes import SOME, parts_of
from strandline.kernel.blocks.block import Block
from strandline.kernel.blocks.small_frames import stacked
from strandline.kernel.output import Counts, Output, Part
from strandline.kernel.watermarks import NEVER, Progress, progress_from_facts
from strandline.model.counts import InputCounts


@dataclass(frozen=True, slots=True)
class StepOutput:
    """A keyed step after a batch: its progress, output watermark, and the size of its state."""

    progress: Progress = field(default_factory=Progress)
    output_watermark: int = NEVER
    rows: int = 0
    """Rows of state, such as windows."""
    size: int = 0
    """Bytes of state."""
    groups: tuple[int, ...] = ()
    """Elements that each key group contributed in this batch."""
    due: int | None = None
    """The clock at which a batch without elements does something in a key group; None if in none."""
    inputs: Mapping[str, InputCounts] = field(default_factory=dict)
    """Counts by role, where the operator stores the rows of several inputs."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The output of a whole batch."""

    frames: Mapping[str, pl.DataFrame]
    steps: Mapping[int, StepOutput]
    counts: Mapping[str, Counts]
    """By the keyed step or output that elements were offered to; their sum is that of the job."""
    clock: int
    drained: bool
    ended: Mapping[int, frozenset[str]]
    """By scan, the partitions that have ended; needed where no keyed step stores them."""
    measured: Measured = field(default_factory=Measured)
    parts: Mapping[int, tuple[Part, ...]] = field(default_factory=dict)
    """By output, rows that tasks have written to its sink already."""

    @property
    def unaccounted(self) -> dict[str, tuple[int, str]]:
        """Return how many elements have no outcome, with the counts, by step or output, and by input of a join."""
        found = {name: (counts.missing, str(counts)) for name, counts in self.counts.items() if counts.missing}
        for number, each in self.steps.items():
            lost = {role: counts for role, counts in each.inputs.items() if counts.missing}
            found |= {f"the {role} input of step {number}": (one.missing, str(one)) for role, one in lost.items()}
        return found

    @property
    def total_counts(self) -> Counts:
        """Return the counts of all steps and outputs."""
        return sum(self.counts.values(), Counts())

    def output(self, number: int, progress: Progress, rows: int) -> Output:
        """Return the rows, late elements and dead letters of one output."""
        panes, late, dead, some = (self.frames.get(f"{name}:{number}") for name in ("out", "late", "dead", SOME))
        parts = self.parts.get(number, ())
        return Output(panes, late, dead, progress, self.total_counts, progress.watermark, rows, parts, some)


def gather(blocks: Iterable[Block]) -> Gathered:
    """Combine the blocks of a batch."""
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
        for name, fields in facts.get("counts", {}).items():
            counts[name] = counts.get(name, Counts()) + Counts(**fields)
        if "step" in facts:
            steps[facts["step"]] = each_step = _with_group(steps.get(facts["step"]), facts)
            clock = max(clock, each_step.progress.clock)
        else:
            clock, drained = max(clock, facts["clock"]), drained or facts["drain"]
        if "scan" in facts:
            ended[facts["scan"]] = ended.get(facts["scan"], frozenset()) | {*facts["ended"]}
    stacked_frames = {name: stacked(each) for name, each in frames.items()}
    return Gathered(stacked_frames, steps, counts, clock, drained, ended, collected(blocks) or Measured(), parts)


def _with_group(known: StepOutput | None, facts: Mapping[str, Any]) -> StepOutput:
    """Add a key group to its step. All key groups of a step have the same progress: they fold the same control rows.
    One of them sends it.
    """
    earlier = Progress() if known is None else known.progress
    progress = progress_from_facts(facts["progress"]) if "progress" in facts else earlier
    contributed = sum(fields["contributed"] for fields in facts["counts"].values())
    inputs = {role: InputCounts(*counts) for role, counts in facts.get("inputs", {}).items()}
    group = StepOutput(
        progress, facts["output_watermark"], facts["rows"], facts["size"], (contributed,), facts["due"], inputs
    )  # fmt: skip
    if known is None:
        return group
    return StepOutput(
        progress,
        min(known.output_watermark, group.output_watermark),
        known.rows + group.rows,
        known.size + group.size,
        known.groups + group.groups,
        min((each for each in (known.due, group.due) if each is not None), default=None),
        {role: known.inputs[role].beside(each) if role in known.inputs else each for role, each in inputs.items()},
    )
