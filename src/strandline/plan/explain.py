"""The stages of a pipeline in words: what runs where, what crosses to Python, what is kept and for how long."""

from strandline.model.steps import cautions
from strandline.model.triggers import describe
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Write
from strandline.plan.stages import KeyedStep


def explain(root: Write) -> str:
    """The stages that will run, one paragraph each, and what is worth a second thought."""
    stages = to_stages(root)
    step = stages.keyed.step
    values = ", ".join(name for name, _ in step.aggregates)
    lines = [
        f"scan      {stages.scan.source.name}, event time from {stages.scan.event_time!r}",
        f"prepare   in Python, per partition: decode, {step.window}, combine by {', '.join(stages.prepare.keys)}",
        f"          one block for each of {stages.prepare.groups} key groups crosses the shuffle",
        f"keyed     in Python, per key group: {describe(step.trigger)}, {step.accumulation}",
        f"          watermark {stages.keyed.watermark.generator}{_idle(stages.keyed)}",
        f"          keeps {values} per key and window until {_until(stages.keyed)}",
        f"deliver   to {stages.deliver.sink.name}, {stages.deliver.delivery.replace('_', ' ')}",
    ]
    return "\n".join([*lines, *(f"caution   {caution}" for caution in cautions(step))])


def _until(keyed: KeyedStep) -> str:
    allowed = keyed.step.lateness.allowed
    return "the end of the stream" if allowed is None else f"{allowed} after the window's end"


def _idle(keyed: KeyedStep) -> str:
    idle = keyed.watermark.idle
    return f", partitions idle after {idle}" if idle else ""
