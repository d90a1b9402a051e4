"""Compute when the heartbeat must tick again: the next clock at which a batch without elements changes something.

A tick is a whole batch. A job with nothing to read ticks rarely, unless processing time has something to do: a trigger,
a time to live, or a partition that becomes idle.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from strandline.execution.gather_output import Gathered, StepOutput
from strandline.kernel.watermarks import FOREVER, Progress
from strandline.model.watermarks import ByClock, Watermark
from strandline.plan.stages import KeyedStep, Stages

AT_ONCE: Final = 0
"""The next tick may change something."""


def next_due(
    stages: Stages, gathered: Gathered, steps: Mapping[int, StepOutput], before: Mapping[int, StepOutput]
) -> int:
    """Return the clock in milliseconds at which the next tick is due, after a batch.

    `steps` and `before` are the steps after and before the batch.
    """
    if gathered.total_counts.read or gathered.frames or gathered.parts or not _is_settled(steps, before):
        return AT_ONCE
    clocks = [FOREVER, *(step.due for step in steps.values() if step.due is not None)]
    for step in stages.steps:
        clocks += _idle_clocks(step, steps[step.number].progress) if step.number in steps else [AT_ONCE]
    return min(clocks)


def write_due(file: Path, due: int) -> None:
    """Tell the heartbeat when a tick is due. The file is replaced, so the heartbeat never reads half of it."""
    text = str(due)
    if not file.exists() or file.read_text() != text:
        draft = file.with_name(f".{file.name}")
        draft.write_text(text)
        draft.replace(file)


def _is_settled(steps: Mapping[int, StepOutput], before: Mapping[int, StepOutput]) -> bool:
    """Tell whether the batch moved no watermark. A watermark that moved may reach another step with the next batch."""
    return steps.keys() == before.keys() and all(
        step.progress.watermark == before[number].progress.watermark
        and step.output_watermark == before[number].output_watermark
        for number, step in steps.items()
    )


def _idle_clocks(step: KeyedStep, progress: Progress) -> Iterator[int]:
    """Yield the clocks at which a partition of a step becomes idle, or a watermark follows the clock."""
    for each in step.inputs:
        if isinstance(each.watermark, Watermark):
            yield from _clocks_of(each.watermark, progress.inputs.get(each.name, progress))


def _clocks_of(rule: Watermark, progress: Progress) -> Iterator[int]:
    if isinstance(rule.generator, ByClock):
        yield AT_ONCE
    if rule.idle is not None:
        silence = rule.idle.ms
        yield from (each.heard + silence + 1 for each in progress.partitions.values() if each.is_active)
