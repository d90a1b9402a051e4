"""The sinks of a job at work: all of them, or none."""

from strandline.plan.stages import Stages
from strandline.spark.letters import LettersApart
from strandline.spark.ports import LetterBox, OpenSink, SparkSink


def open_sinks(stages: Stages, lineage: str) -> tuple[OpenSink, ...]:
    """Every sink at work, or none: one that cannot be opened closes those before it."""
    opened: list[OpenSink] = []
    try:
        for output in stages.outputs:
            sink: SparkSink = output.sink  # type: ignore[assignment]
            opened.append(sink.open(output))
            if isinstance(output.dead, LetterBox):
                opened[-1] = LettersApart(opened[-1], output.dead.open_letters(lineage))
    except BaseException:
        for each in opened:
            each.close()
        raise
    return tuple(opened)
