"""From what was asked to what is done: checks first, then nodes become stages."""

from typing import Final

from strandline.errors import InvalidStep
from strandline.model.panes import Accumulation
from strandline.plan.nodes import Aggregated, EventTime, Read, Write, fingerprint
from strandline.plan.stages import Deliver, KeyedStep, Prepare, Scan, Stages

GROUPS: Final = 16
"""Key groups of a pipeline. It bounds how far a job can be spread, and it is kept with the state."""


def to_stages(root: Write) -> Stages:
    """The stages of a pipeline, or the reason why it cannot run."""
    _refuse(root)
    panes = root.of
    timed = panes.of if isinstance(panes, Aggregated) else panes
    if not isinstance(panes, Aggregated) or not isinstance(timed, EventTime) or not isinstance(timed.of, Read):
        raise InvalidStep(
            "this pipeline is not source, event time, key, aggregate, sink",
            hint="write read(…).event_time(…).key_by(…).window(…).aggregate(…).write(…)",
        )
    source = timed.of.source
    return Stages(
        Scan(source, timed.column),
        Prepare(panes.keys, panes.step, timed.watermark, GROUPS),
        KeyedStep(panes.keys, panes.step, timed.watermark, source.partitions),
        Deliver(root.sink, root.delivery),
        fingerprint(root),
    )


def _refuse(root: Write) -> None:
    """What cannot run, and what would promise more than a sink can keep."""
    sink, panes = root.sink, root.of
    if root.delivery not in sink.offers:
        raise InvalidStep(
            f"{sink.name} cannot deliver {root.delivery.replace('_', ' ')}",
            detail=f"it offers {', '.join(sorted(sink.offers))}",
            hint="choose another delivery, or another sink",
        )
    if isinstance(panes, Aggregated):
        retracting = panes.step.accumulation is Accumulation.RETRACTING
        if retracting and not sink.takes_retractions:
            raise InvalidStep(f"{sink.name} cannot take retractions", hint="accumulate(accumulating), or another sink")
        _refuse_columns(panes)


def _refuse_columns(panes: Aggregated) -> None:
    timed = panes.of
    source = timed.of.source if isinstance(timed, EventTime) and isinstance(timed.of, Read) else None
    if source is None or not isinstance(timed, EventTime):
        return
    read = [*([timed.column] if timed.column else []), *panes.keys]
    read += [column for _, aggregate in panes.step.aggregates for column in _columns(aggregate)]
    for column in read:
        if column not in source.columns:
            raise InvalidStep(
                f"{source.name} has no column {column!r}",
                detail=f"it has {', '.join(source.columns)}",
                hint="check the name",
            )
    clash = sorted({name for name, _ in panes.step.aggregates} & set(panes.keys))
    if clash:
        raise InvalidStep(f"{clash[0]!r} is both a key and an aggregate", hint="give the aggregate another name")


def _columns(aggregate: object) -> list[str]:
    named = (getattr(aggregate, "column", None), getattr(aggregate, "by", None))
    return [column for column in named if column is not None]
