"""The stages of a pipeline in words: what runs where, what crosses to Python, what is kept and for how long."""

from strandline.model.steps import cautions, lifts
from strandline.model.triggers import describe
from strandline.model.watermarks import describe as describe_watermark
from strandline.model.windows import describe as describe_window
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Write
from strandline.plan.stages import KeyedStep, Scan


def explain(root: Write) -> str:
    """The stages that will run, one paragraph each, and what is worth a second thought."""
    stages = to_stages(root)
    step = stages.keyed.step
    values = ", ".join(name for name, _ in step.aggregates)
    keys = ", ".join(stages.prepare.keys)
    combined = f"combine by {keys}" if lifts(step) else f"group by {keys} one by one"
    lines = [
        f"scan      {stages.scan.source.name}, {_time(stages.scan)}",
        f"prepare   in Python, per partition: decode, {describe_window(step.window)}, {combined}",
        f"          one block for each of {stages.prepare.groups} key groups crosses the shuffle",
        f"keyed     in Python, per key group: {describe(step.trigger)}, {step.accumulation}",
        f"          watermark {describe_watermark(stages.keyed.watermark.generator)}{_idle(stages.keyed)}",
        f"          keeps {values} per key and window until {_until(stages.keyed)}",
        f"deliver   to {stages.deliver.sink.name}, {stages.deliver.delivery.replace('_', ' ')}",
    ]
    return "\n".join([*lines, *(f"caution   {caution}" for caution in cautions(step))])


def _time(scan: Scan) -> str:
    return f"event time from {scan.event_time!r}" if scan.event_time else "the clock as its time"


def _until(keyed: KeyedStep) -> str:
    allowed = keyed.step.lateness.allowed
    return "the end of the stream" if allowed is None else f"{allowed} after the window's end"


def _idle(keyed: KeyedStep) -> str:
    idle = keyed.watermark.idle
    return f", partitions idle after {idle}" if idle else ""
