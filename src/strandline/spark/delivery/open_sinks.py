"""The sinks of a job at work: all of them, or none."""

from collections.abc import Iterable

from strandline.plan.stages import Stages
from strandline.ports.dead_letter_masking import with_letters
from strandline.ports.sinks import OpenSink, SparkSink


def open_sinks(stages: Stages, lineage: str) -> tuple[OpenSink, ...]:
    """Every sink at work, or none: one that cannot be opened closes those before it."""
    opened: list[OpenSink] = []
    try:
        for output in stages.outputs:
            sink: SparkSink = output.sink  # type: ignore[assignment]
            opened.append(sink.open(output))
            opened[-1] = with_letters(opened[-1], output, lineage)
    except BaseException:
        close_sinks(opened)
        raise
    return tuple(opened)


def close_sinks(opened: Iterable[OpenSink]) -> None:
    """None of them is at work any more."""
    for each in opened:
        each.close()
