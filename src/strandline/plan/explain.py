"""Describe the stages of a pipeline: what runs where, what crosses to Python, what state is kept and how long."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from strandline.model.watermarks import Inputs
from strandline.model.watermarks import describe as describe_watermark
from strandline.plan.arrival_order import order_dependence
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Root
from strandline.plan.stages import Flagged, Flow, Input, KeepFlagged, KeyedStep, Route, Scan, Stages
from strandline.plan.stateless_operations import Operation
from strandline.plan.stateless_operations import describe as describe_operation


def explain(root: Root) -> str:
    """Compile a pipeline and describe its stages, with cautions."""
    return explain_stages(to_stages(root))


def explain_stages(stages: Stages) -> str:
    """Describe compiled stages, with cautions."""
    lines: list[tuple[str, str]] = []
    for scan in stages.scans:
        lines += _scan(scan, stages)
    for step in stages.steps:
        lines += _step(step, stages)
    for out in stages.outputs:
        lines.append(("deliver", f"to {out.sink.name}, {out.delivery.replace('_', ' ')}"))
        if out.kept_rows is not None:
            lines.append(("", out.kept_rows))
        if out.dead is not None:
            hidden = f", {', '.join(out.dead.mask)} masked" if out.dead.mask else ""
            lines.append(("", f"dead letters to {out.dead.name}{hidden}"))
    if all(getattr(scan.source, "ends", False) for scan in stages.scans):
        reason = order_dependence(stages)
        how = "runs as one batch" if reason is None else f"runs in micro-batches, in arrival order: {reason}"
        lines.append(("ends", how))
    for step in stages.steps:
        lines += [("caution", caution) for caution in step.plan.cautions()]
    lines += [("caution", caution) for caution in stages.cautions]
    return "\n".join(f"{title:<9} {text}" for title, text in lines)


def _scan(scan: Scan, stages: Stages) -> Iterator[tuple[str, str]]:
    times = dict.fromkeys(_time(flow) for flow in scan.flows if flow.watermark is not None)
    yield "scan", ", ".join([scan.source.name, *times])
    if scan.native:
        yield "", f"in Spark: {_operations(scan.native)}"
    for flow in scan.flows:
        for route in flow.routes:
            yield from _prepare(scan, flow, route, stages)


def _prepare(scan: Scan, flow: Flow, route: Route, stages: Stages) -> Iterator[tuple[str, str]]:
    actions = [
        describe_operation(each) for each in (*flow.operations, *route.operations) if not isinstance(each, KeepFlagged)
    ]
    if scan.source.decoder is not None:
        actions.insert(0, "decode")
    if route.step is None:
        yield "prepare", f"in Python, per partition: {', '.join([*actions, 'rows'])}{_destination(route, stages)}"
        return
    step = stages.by_number[route.step]
    actions.append(step.plan.explain_prepare(step.paths[route.input].keys))
    yield "prepare", f"in Python, per partition: {', '.join(actions)}"
    yield "", "one block for each key group crosses the shuffle"


def _step(step: KeyedStep, stages: Stages) -> Iterator[tuple[str, str]]:
    yield _title(step, stages), f"in Python, per key group: {step.plan.explain_step()}"
    yield "", " and ".join(_watermark(each) for each in step.inputs)
    yield "", step.plan.explain_state()
    if step.late_to != step.dead_to:
        yield "", f"late elements go to {stages.outputs[step.late_to].sink.name}"
    for route in step.routes:
        actions = [describe_operation(each) for each in route.operations if not isinstance(each, KeepFlagged)]
        if actions or len(stages.outputs) + len(stages.steps) > 2:
            yield "", ", ".join(["panes" if step.plan.declared else "rows", *actions]) + _destination(route, stages)


def _title(step: KeyedStep, stages: Stages) -> str:
    return "keyed" if len(stages.steps) == 1 else f"keyed {step.number}"


def _destination(route: Route, stages: Stages) -> str:
    if route.step is not None:
        return f" go to keyed {route.step} by {', '.join(stages.by_number[route.step].keys)}"
    return f" go to {stages.outputs[route.output or 0].sink.name}"


def _operations(operations: Sequence[Operation | Flagged]) -> str:
    return ", ".join(
        f"test {each.condition}" if isinstance(each, Flagged) else describe_operation(each) for each in operations
    )


def _time(flow: Flow) -> str:
    if not flow.event_time:
        return "processing time"
    spans = [
        f" {word} {datetime.fromtimestamp(bound / 1000, UTC).isoformat()}"
        for word, bound in (("from", flow.start), ("before", flow.end))
        if bound is not None
    ]
    return f"event time from {flow.event_time!r}{'; only'.join(['', *spans])}"


def _watermark(given: Input) -> str:
    if given.watermark is None:
        return f"watermark of {given.name.replace('step', 'keyed')}"
    if isinstance(given.watermark, Inputs):
        return "watermark set by hand"
    idle = f", partitions idle after {given.watermark.idle}" if given.watermark.idle else ""
    return f"watermark {describe_watermark(given.watermark.generator)}{idle}"
