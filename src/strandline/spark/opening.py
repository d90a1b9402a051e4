"""The sinks of a job at work: all of them, or none."""

from strandline.plan.stages import Stages
from strandline.spark.letters import with_letters
from strandline.spark.ports import OpenSink, SparkSink


def open_sinks(stages: Stages, lineage: str) -> tuple[OpenSink, ...]:
    """Every sink at work, or none: one that cannot be opened closes those before it."""
    opened: list[OpenSink] = []
    try:
        for output in stages.outputs:
            sink: SparkSink = output.sink  # type: ignore[assignment]
            opened.append(sink.open(output))
            opened[-1] = with_letters(opened[-1], output, lineage)
    except BaseException:
        for each in opened:
            each.close()
        raise
    return tuple(opened)
