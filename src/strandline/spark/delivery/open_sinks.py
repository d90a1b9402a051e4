"""Open and close the sinks of a job."""

from collections.abc import Iterable
from functools import partial

from strandline.plan.stages import Stages
from strandline.ports.dead_letter_masking import with_letters
from strandline.ports.sinks import OpenSink, SparkSink
from strandline.spark.delivery.deliver import Retry


def open_sinks(stages: Stages, lineage: str, retry: Retry | None = None) -> tuple[OpenSink, ...]:
    """Open every sink. If one fails, close those that are open and raise; with `retry`, wait if it is unreachable."""
    opened: list[OpenSink] = []
    try:
        for output in stages.outputs:
            sink: SparkSink = output.sink  # type: ignore[assignment]
            open_one = partial(sink.open, output)
            opened.append(open_one() if retry is None else retry.until_done(open_one, sink.name))
            opened[-1] = with_letters(opened[-1], output, lineage)
    except BaseException:
        close_sinks(opened)
        raise
    return tuple(opened)


def close_sinks(opened: Iterable[OpenSink]) -> None:
    """Close every sink."""
    for each in opened:
        each.close()
