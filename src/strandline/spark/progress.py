"""Describe the state and the progress of a job as plain values."""

from dataclasses import dataclass
from enum import StrEnum

from strandline.kernel.output import Counts
from strandline.model.elements import BEGINNING, END, Timestamp
from strandline.plan.stages import step_name
from strandline.ports.waiting import Waiting
from strandline.spark.delivery.deliver import Delivered


class State(StrEnum):
    """The state of a job."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """For a broker, a sink or a registry that is unreachable, or for a failed task. Nothing is lost."""
    DRAINING = "draining"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a job, its last delivered batch, and why it failed or waits."""

    state: State
    batch: int | None
    problem: str = ""
    waiting: Waiting | None = None
    """What the job waits for; `problem` says the same as text."""


@dataclass(frozen=True, slots=True)
class StepProgress:
    """A keyed step after a batch: its input and output watermark, its open windows, and its counts."""

    name: str
    watermark: Timestamp
    output_watermark: Timestamp
    windows: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A job after a batch. `counts` are of the batch, `total` of all batches since this run started.

    Both cover the whole job: `read` counts records of the sources. Counts of each step are in `steps`.
    """

    batch: int
    clock: Timestamp
    watermark: Timestamp
    counts: Counts
    total: Counts
    idle: tuple[str, ...]
    """Partitions that do not hold back the watermark."""
    windows: int
    seconds: float
    """Since the previous batch was delivered."""
    steps: tuple[StepProgress, ...]

    @property
    def per_second(self) -> float:
        """Return the elements read per second in this batch."""
        return self.counts.read / self.seconds if self.seconds else 0.0

    @property
    def behind_seconds(self) -> float | None:
        """Return the lag of the watermark behind the clock; None before the first watermark, and at the end."""
        if self.watermark in (BEGINNING, END):
            return None
        return (self.clock.ms - self.watermark.ms) / 1000


def progress_of(last: Delivered, total: Counts, seconds: float) -> JobProgress:
    """Return the progress after a delivered batch."""
    reached = last.output.progress
    steps = [
        StepProgress(
            step_name(number),
            Timestamp(each.progress.watermark),
            Timestamp(each.output_watermark),
            each.rows,
            last.counts.get(step_name(number), Counts()),
        )
        for number, each in sorted(last.steps.items())
    ]
    return JobProgress(
        batch=last.batch,
        clock=Timestamp(reached.clock),
        watermark=Timestamp(reached.watermark),
        counts=last.output.counts,
        total=total,
        idle=reached.idle,
        windows=last.output.rows,
        seconds=seconds,
        steps=tuple(steps),
    )
