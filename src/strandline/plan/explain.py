"""The stages of a pipeline in words: what runs where, what crosses to Python, what is kept and for how long."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from strandline.model.watermarks import describe as describe_watermark
from strandline.plan.arrival_order import order_dependence
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Root
from strandline.plan.stages import Flagged, Flow, Input, KeepFlagged, KeyedStep, Route, Scan, Stages
from strandline.plan.stateless_operations import Operation
from strandline.plan.stateless_operations import describe as describe_operation


def explain(root: Root) -> str:
    """The stages that will run, a paragraph each, and what is worth a second thought."""
    return explain_stages(to_stages(root))


def explain_stages(stages: Stages) -> str:
    """The same, of stages that are there already."""
    lines: list[tuple[str, str]] = []
    for scan in stages.scans:
        lines += _scan(scan, stages)
    for step in stages.steps:
        lines += _step(step, stages)
    for out in stages.outputs:
        lines.append(("deliver", f"to {out.sink.name}, {out.delivery.replace('_', ' ')}"))
        if out.dead is not None:
            hidden = f", {', '.join(out.dead.mask)} masked" if out.dead.mask else ""
            lines.append(("", f"dead letters to {out.dead.name}{hidden}"))
    if all(getattr(scan.source, "ends", False) for scan in stages.scans):
        why = order_dependence(stages)
        lines.append(("ends", "played as one batch" if why is None else f"played in the order of arrival: {why}"))
    for step in stages.steps:
        lines += [("caution", caution) for caution in step.plan.cautions()]
    return "\n".join(f"{title:<9} {text}" for title, text in lines)


def _scan(scan: Scan, stages: Stages) -> Iterator[tuple[str, str]]:
    times = dict.fromkeys(_time(flow) for flow in scan.flows if flow.watermark is not None)
    yield "scan", ", ".join([scan.source.name, *times])
    if scan.native:
        yield "", f"in Spark: {_operations(scan.native)}"
    for flow in scan.flows:
        for route in flow.routes:
            yield from _prepared(scan, flow, route, stages)


def _prepared(scan: Scan, flow: Flow, route: Route, stages: Stages) -> Iterator[tuple[str, str]]:
    done = [
        describe_operation(each) for each in (*flow.operations, *route.operations) if not isinstance(each, KeepFlagged)
    ]
    if scan.source.decoder is not None:
        done.insert(0, "decode")
    if route.step is None:
        yield "prepare", f"in Python, per partition: {', '.join([*done, 'rows'])}{_towards(route, stages)}"
        return
    step = stages.by_number[route.step]
    done.append(step.plan.explain_prepare(step.strands[route.input].keys))
    yield "prepare", f"in Python, per partition: {', '.join(done)}"
    yield "", "one block for each key group crosses the shuffle"


def _step(step: KeyedStep, stages: Stages) -> Iterator[tuple[str, str]]:
    yield _title(step, stages), f"in Python, per key group: {step.plan.explain_step()}"
    yield "", " and ".join(_watermark(each) for each in step.inputs)
    yield "", step.plan.explain_state()
    for route in step.routes:
        done = [describe_operation(each) for each in route.operations if not isinstance(each, KeepFlagged)]
        if done or len(stages.outputs) + len(stages.steps) > 2:
            yield "", ", ".join(["panes" if step.plan.declared else "rows", *done]) + _towards(route, stages)


def _title(step: KeyedStep, stages: Stages) -> str:
    return "keyed" if len(stages.steps) == 1 else f"keyed {step.number}"


def _towards(route: Route, stages: Stages) -> str:
    if route.step is not None:
        return f" go on by {', '.join(stages.by_number[route.step].keys)} to keyed {route.step}"
    return f" go to {stages.outputs[route.output or 0].sink.name}"


def _operations(operations: Sequence[Operation | Flagged]) -> str:
    return ", ".join(
        f"test {each.condition}" if isinstance(each, Flagged) else describe_operation(each) for each in operations
    )


def _time(flow: Flow) -> str:
    if not flow.event_time:
        return "the clock as its time"
    spans = [
        f" {word} {datetime.fromtimestamp(bound / 1000, UTC).isoformat()}"
        for word, bound in (("from", flow.start), ("before", flow.end))
        if bound is not None
    ]
    return f"event time from {flow.event_time!r}{'; only'.join(['', *spans])}"


def _watermark(given: Input) -> str:
    if given.watermark is None:
        return f"watermark of {given.name.replace('step', 'keyed')}"
    idle = f", partitions idle after {given.watermark.idle}" if given.watermark.idle else ""
    return f"watermark {describe_watermark(given.watermark.generator)}{idle}"
