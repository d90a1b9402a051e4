"""Parse a story from YAML or from a mapping: a pipeline, and the steps that are played on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from strandline.errors import InvalidStory, PlanError
from strandline.model.elements import Element
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import BY_HAND, FromSource, Inputs, Watermark
from strandline.plan.endpoints import Source
from strandline.plan.nodes import KeyedNode, Node, outputs_of
from strandline.plan.stories.located_values import Written, from_value, from_yaml
from strandline.plan.stories.operators import words_of
from strandline.plan.stories.operators.contract import WithAnyColumn
from strandline.plan.stories.operators.window import PANE
from strandline.plan.stories.parse_pipeline import to_pipeline
from strandline.plan.stories.parse_rows import ROW
from strandline.plan.stories.parse_steps import Fields, Known, keyed_element, steps_of
from strandline.plan.stories.story_pipeline import ONLY, StoryPipeline, one_operator
from strandline.plan.stories.story_steps import FallIdle, Feed, Finish, MoveWatermark, ReturnActive, Step
from strandline.plan.stories.user_pipeline import element_of, names_a_pipeline, user_pipeline

SUFFIX: Final = ".story.yaml"
USER_FIELDS: Final = Fields({name: read for name, read in PANE.items() if name != "key"})
"""Fields of a user's panes beside their columns."""
EXPECTATION: Final = "expectation"
"""`fails: expectation`: an expectation fails."""


@dataclass(frozen=True, slots=True)
class Story:
    """A story. `fails` says how it must fail; `refusal` is the error from parsing it, if it must fail with one."""

    name: str
    pipeline: StoryPipeline
    steps: tuple[Step, ...]
    fails: str | None = None
    place: str = ""
    refusal: PlanError | None = field(default=None, compare=False)


def read_stories(path: Path | str) -> list[Story]:
    """Read the stories of a file, one per document."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidStory(f"{path}: cannot be read", detail=str(problem)) from None
    documents = from_yaml(text, str(path))
    if not documents:
        raise InvalidStory(f"{path}: there is no story, expected a mapping with story, pipeline and steps")
    return [_story(document, Path(path).parent) for document in documents]


def to_story(given: Mapping[str, Any], place: str = "story") -> Story:
    """Parse a story from a mapping with the structure of the YAML."""
    return _story(from_value(given, place))


def story_over(pipeline: StoryPipeline, steps: Sequence[Mapping[str, Any]], name: str) -> Story:
    """Parse a story over a pipeline from code; its steps are mappings with the structure of the YAML."""
    return Story(name, pipeline, _steps(pipeline, from_value(list(steps), "steps")), place=name)


def known_of(pipeline: StoryPipeline) -> Known:
    """Return what the steps of a story can name in its pipeline."""
    inputs = tuple(pipeline.input_name(source) for source in pipeline.sources)
    operators = tuple(pipeline.name_of(number) for number in range(len(pipeline.nodes)))
    writes = dict(zip(pipeline.output_names, outputs_of(pipeline.root), strict=False))
    if pipeline.is_inline:
        outputs = {name: _fields(write.of) for name, write in writes.items()}
        return Known(inputs, operators, outputs, lambda _, each: keyed_element(each), names_inputs=inputs != (ONLY,))
    parsers = {pipeline.input_name(source): element_of(source) for source in pipeline.sources}
    # Outputs of late elements follow those that are written.
    fields = dict.fromkeys(pipeline.output_names, USER_FIELDS)
    return Known(inputs, operators, fields, lambda name, each: parsers[name](each), names_inputs=True)


def _fields(node: Node) -> Fields:
    """Return the fields of an output's rows, and whether there are no others."""
    if isinstance(node, KeyedNode) and (readers := words_of(node.operator).readers(node.operator)) is not None:
        is_open = isinstance(readers, WithAnyColumn)
        return Fields({**readers, **dict.fromkeys(node.keys, Written.plain)}, only=not is_open)
    return Fields(ROW)


def _steps(pipeline: StoryPipeline, given: Written) -> tuple[Step, ...]:
    steps = steps_of(given, known_of(pipeline))
    if pipeline.is_inline:
        _check_names(pipeline, steps)
    return steps


def _story(given: Written, folder: Path | None = None) -> Story:
    members = given.members_among(("story", "rule", "pipeline", "fails", "steps"), "a story")
    name = given.required(members, "story").text()
    fails = members["fails"].text("'expectation', or the text of an error") if "fails" in members else None
    try:
        pipeline = _pipeline(members.get("pipeline", Written({}, given.place)), folder)
        steps = _steps(pipeline, given.required(members, "steps"))
    except PlanError as refusal:
        if fails in (None, EXPECTATION):
            raise
        return Story(name, one_operator(WindowedStep()), (), fails, given.place, refusal)
    return Story(name, pipeline, steps, fails, given.place)


def _pipeline(given: Written, folder: Path | None) -> StoryPipeline:
    return user_pipeline(given, folder) if names_a_pipeline(given) else to_pipeline(given)


def _check_names(pipeline: StoryPipeline, steps: tuple[Step, ...]) -> None:
    """Check that steps move only watermarks that the story controls, of partitions and inputs known by then.

    Elements and `active` make partitions of a source known; inputs of a watermark by hand are all known from the start.
    """
    rules = pipeline.times
    known = {source.name: _names_of(rules[source.name], source) for source in pipeline.sources}
    for step in steps:
        match step.act:
            case Feed(elements):
                for element in elements:
                    _meet(step, element, pipeline, known, rules)
            case MoveWatermark(of=of, input=source):
                for name in _sources(pipeline, source):
                    _check_by_hand(step, rules[name])
                    _check_known(step, known[name] - {""}, *([] if of is None else [of]))
            case FallIdle(str() as of, source) | Finish(str() as of, source) | ReturnActive(str() as of, source):
                for name in _sources(pipeline, source):
                    if isinstance(step.act, ReturnActive) and isinstance(rules[name], Watermark):
                        known[name].add(of)
                    _check_known(step, known[name] - {""}, of)
            case _:
                pass


def _meet(
    step: Step,
    element: Element,
    pipeline: StoryPipeline,
    known: Mapping[str, set[str]],
    rules: Mapping[str, Watermark | Inputs],
) -> None:
    """Add the partition of an element to those known, or check it against the inputs of a watermark by hand."""
    (name,) = _sources(pipeline, element.input or None)
    if isinstance(rules[name], Watermark):
        known[name].add(element.partition)
    elif rules[name] != BY_HAND and element.partition:
        _check_known(step, known[name], element.partition)


def _sources(pipeline: StoryPipeline, name: str | None) -> list[str]:
    return [source.name for source in pipeline.sources] if name is None else [name]


def _names_of(rule: Watermark | Inputs, source: Source) -> set[str]:
    return {*rule.names} if isinstance(rule, Inputs) else {*source.partitions}


def _check_by_hand(step: Step, rule: Watermark | Inputs) -> None:
    if isinstance(rule, Watermark) and not isinstance(rule.generator, FromSource):
        raise InvalidStory(f"{step.place}: a step moves the watermark, but the pipeline has a rule for it")


def _check_known(step: Step, known: set[str], *names: str) -> None:
    for name in names:
        if name not in known:
            names_known = ", ".join(sorted(known)) or "none; the pipeline has one watermark without a name"
            raise InvalidStory(
                f"{step.place}: no partition or input is called {name!r}", detail=f"known: {names_known}"
            )
