"""How a job is, and how far it has come: plain values to look at, to log, to draw."""

from dataclasses import dataclass
from enum import StrEnum

from strandline.kernel.output import Counts
from strandline.model.elements import BEGINNING, END, Timestamp
from strandline.plan.stages import step_name
from strandline.spark.delivery.deliver import Delivered


class State(StrEnum):
    """How a job is."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """For a sink or a registry that is out of reach; nothing is lost, and it goes on when they return."""
    DRAINING = "draining"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a job, the batch it delivered last, and if it failed or waits, why."""

    state: State
    batch: int | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StepProgress:
    """A keyed step: how far time has come before and after it, the windows it keeps, and who came to it in a batch."""

    name: str
    watermark: Timestamp
    output_watermark: Timestamp
    windows: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A job after a batch. `counts` are of the batch, `total` of all batches since this run started.

    Both tell of the whole job: `read` is what came from its sources. What came to each step is in `steps`.
    """

    batch: int
    clock: Timestamp
    watermark: Timestamp
    counts: Counts
    total: Counts
    idle: tuple[str, ...]
    """The partitions that no longer hold the watermark back."""
    windows: int
    seconds: float
    """Since the batch before it was delivered."""
    steps: tuple[StepProgress, ...]

    @property
    def per_second(self) -> float:
        """Elements read in a second, by this batch."""
        return self.counts.read / self.seconds if self.seconds else 0.0

    @property
    def behind_seconds(self) -> float | None:
        """How far the watermark is behind the clock; None while there is none, or at the end."""
        if self.watermark in (BEGINNING, END):
            return None
        return (self.clock.ms - self.watermark.ms) / 1000


def progress_of(last: Delivered, total: Counts, seconds: float) -> JobProgress:
    """What a delivered batch tells."""
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
