"""Describe the stages of a pipeline to the oracle, which knows neither plans nor frames."""

from collections.abc import Iterator

from strandline.errors import Unsupported
from strandline.model.lookup_join import LookupJoin
from strandline.plan.stages import Flagged, Flow, KeepFlagged, KeyedStep, Route, Scan, Stages
from strandline.plan.stateless_operations import Operation, describe
from strandline.plan.stories.story_pipeline import AT, KEY, StoryPipeline
from strandline.reference.graph import Exit, Graph, Path, Step, StepInput


def graph_of(pipeline: StoryPipeline) -> Graph:
    """Return the steps of a pipeline; raise if rows pass stateless operations, which the oracle does not run."""
    stages = pipeline.stages
    ways = [*_ways(stages.scans)]
    refused = next(_operations(stages), None)
    if refused is not None:
        raise Unsupported(f"the reference does not run «{refused}»", hint="play the story on kernel or on spark")
    steps = tuple(_step(pipeline, step, ways, stages.steps) for step in stages.steps)
    exits = tuple(_exit(pipeline, *way) for way in ways if way[2].output is not None)
    if not steps and not any(each.path.lookups for each in exits):
        raise Unsupported("the reference plays keyed operators", hint="play the story on kernel or on spark")
    hidden = frozenset({KEY, AT}) if pipeline.is_inline else frozenset[str]()
    return Graph(steps, hidden, {pipeline.name_of(step): step.number for step in stages.steps}, exits)


def _exit(pipeline: StoryPipeline, scan: Scan, flow: Flow, route: Route) -> Exit:
    output = route.output or 0
    keys, lookups = ((KEY,) if pipeline.is_inline else ()), _lookups(route)
    source = pipeline.input_name(scan.source)
    path = Path(keys, flow.name, scan.source.name, source=source, time=flow.event_time, lookups=lookups)
    return Exit(path, pipeline.output_names[output], f"out:{output}")


def _lookups(route: Route) -> tuple[LookupJoin, ...]:
    return tuple(each for each in route.operations if isinstance(each, LookupJoin))


def _operations(stages: Stages) -> Iterator[str]:
    """Describe every stateless operation that rows pass."""
    for scan in stages.scans:
        yield from (_described(each) for each in scan.native)
    for _, flow, route in _ways(stages.scans):
        others = (each for each in route.operations if not isinstance(each, LookupJoin))
        yield from (_described(each) for each in (*flow.operations, *others))
        if (flow.start, flow.end) != (None, None):
            yield "a span of event time"
    for step in stages.steps:
        yield from (_described(each) for route in step.routes for each in route.operations)


def _described(operation: Operation | Flagged | KeepFlagged) -> str:
    match operation:
        case Flagged(_, condition):
            return f"where {condition}"
        case KeepFlagged(flag):
            return f"where {flag}"
        case _:
            return describe(operation)


def _ways(scans: tuple[Scan, ...]) -> Iterator[tuple[Scan, Flow, Route]]:
    for scan in scans:
        for flow in scan.flows:
            for route in flow.routes:
                yield scan, flow, route


def _step(
    pipeline: StoryPipeline, step: KeyedStep, ways: list[tuple[Scan, Flow, Route]], steps: tuple[KeyedStep, ...]
) -> Step:
    names = pipeline.output_names
    outputs = tuple(names[route.output] for route in step.routes if route.output is not None)
    sources = {flow.name: pipeline.input_name(scan.source) for scan, flow, _ in ways}
    inputs = tuple(
        StepInput(each.name, each.watermark, each.partitions, sources.get(each.name, "")) for each in step.inputs
    )
    paths = [_path(pipeline, step, number, ways, steps) for number in range(len(step.paths))]
    return Step(
        pipeline.name_of(step), step.operator, inputs, tuple(paths), outputs, names[step.late_to], names[step.dead_to]
    )


def _path(
    pipeline: StoryPipeline,
    step: KeyedStep,
    number: int,
    ways: list[tuple[Scan, Flow, Route]],
    steps: tuple[KeyedStep, ...],
) -> Path:
    keys, role = step.paths[number].keys, step.paths[number].role
    for scan, flow, route in ways:
        if route.step == step.number and route.input == number:
            name = pipeline.input_name(scan.source)
            return Path(
                keys, flow.name, scan.source.name, source=name, time=flow.event_time, role=role, lookups=_lookups(route)
            )
    sender = next(
        each for each in steps if any(route.step == step.number and route.input == number for route in each.routes)
    )
    return Path(keys, sender.name, pipeline.name_of(sender), step=sender.number, role=role)
