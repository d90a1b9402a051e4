"""Open and close the sinks of a job."""

from collections.abc import Iterable

from strandline.plan.stages import Stages
from strandline.ports.dead_letter_masking import with_letters
from strandline.ports.sinks import OpenSink, SparkSink


def open_sinks(stages: Stages, lineage: str) -> tuple[OpenSink, ...]:
    """Open every sink. If one fails, close those that are open and raise."""
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
    """Close every sink."""
    for each in opened:
        each.close()
