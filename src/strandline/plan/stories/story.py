"""A transcript as a value, read from YAML or from a mapping: a pipeline, and the steps that are played on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from strandline.errors import InvalidStory, PlanError, Unsupported
from strandline.model.deduplicate import Deduplicate, Keep
from strandline.model.elements import TimeDomain
from strandline.model.operators import Operator
from strandline.model.panes import Accumulation, Emit, Lateness, LateRows, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import BY_HAND, ByClock, FromSource, Inputs, Watermark
from strandline.plan.stories.located_values import Written, from_value, from_yaml
from strandline.plan.stories.parse_aggregates import aggregate
from strandline.plan.stories.parse_steps import steps_of
from strandline.plan.stories.parse_triggers import trigger
from strandline.plan.stories.parse_windows import evictor, watermark, window
from strandline.plan.stories.story_steps import FallIdle, Feed, Finish, MoveWatermark, ReturnActive, Step

SUFFIX: Final = ".story.yaml"
EXPECTATION: Final = "expectation"
"""`fails: expectation`: some expectation does not hold."""


@dataclass(frozen=True, slots=True)
class StoryPipeline:
    """What a player is made for: the step, the rule for its watermark, and how batches are cut."""

    step: WindowedStep = WindowedStep()
    watermark: Watermark | Inputs = BY_HAND
    partitions: tuple[str, ...] = ()
    fires_per_element: bool = False
    deduplicate: Deduplicate | None = None
    """In place of the windowed step."""

    @property
    def operator(self) -> Operator:
        return self.step if self.deduplicate is None else self.deduplicate


@dataclass(frozen=True, slots=True)
class Story:
    """A transcript. Where it is meant to fail, `fails` says how, and a refusal met while reading it is kept."""

    name: str
    pipeline: StoryPipeline
    steps: tuple[Step, ...]
    fails: str | None = None
    place: str = ""
    refusal: PlanError | None = field(default=None, compare=False)


def read_stories(path: Path | str) -> list[Story]:
    """The stories of a file, one for each of its documents."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidStory(f"{path}: cannot be read", detail=str(problem)) from None
    documents = from_yaml(text, str(path))
    if not documents:
        raise InvalidStory(f"{path}: no story in it, expected a mapping with story, pipeline and steps")
    return [_story(document) for document in documents]


def to_story(given: Mapping[str, Any], place: str = "story") -> Story:
    """A story from a mapping that is built like the YAML."""
    return _story(from_value(given, place))


def story_over(pipeline: StoryPipeline, steps: Sequence[Mapping[str, Any]], name: str) -> Story:
    """A story over a pipeline that was written as code; its steps are mappings, built like the YAML."""
    return Story(name, pipeline, _steps(pipeline, from_value(list(steps), "steps")), place=name)


def _steps(pipeline: StoryPipeline, given: Written) -> tuple[Step, ...]:
    names = [] if pipeline.deduplicate is not None else [name for name, _ in pipeline.step.aggregates]
    steps = steps_of(given, names, has_windows=pipeline.deduplicate is None)
    _check_names(pipeline, steps)
    return steps


def _story(given: Written) -> Story:
    members = given.only(("story", "rule", "pipeline", "fails", "steps"), "a story")
    name = given.has(members, "story").text()
    fails = members["fails"].text("'expectation', or the text of an error") if "fails" in members else None
    try:
        pipeline = to_pipeline(members.get("pipeline", Written({}, given.place)))
        steps = _steps(pipeline, given.has(members, "steps"))
    except PlanError as refusal:
        if fails in (None, EXPECTATION):
            raise
        return Story(name, StoryPipeline(), (), fails, given.place, refusal)
    return Story(name, pipeline, steps, fails, given.place)


_FIELDS: Final = (
    "window", "time", "trigger", "accumulation", "allowed_lateness", "aggregate", "pane_timestamp", "on_time_pane",
    "final_pane", "late", "evict", "ttl", "watermark", "fires",
)  # fmt: skip


_DEDUPLICATE_FIELDS: Final = ("deduplicate", "time", "allowed_lateness", "watermark", "fires")


def to_pipeline(given: Written) -> StoryPipeline:
    """The pipeline of a story; every field has its default."""
    for word in ("join", "pattern"):
        if word in given.members("a pipeline, as a mapping"):
            raise Unsupported(f"{given.place}: a story with a {word} cannot be played yet")
    without_windows = "deduplicate" in given.members("a pipeline, as a mapping")
    said = given.only(_DEDUPLICATE_FIELDS if without_windows else _FIELDS, "a pipeline")
    deduplicate = _deduplicate(given, said) if without_windows else None
    step = WindowedStep() if without_windows else _windowed_step(given, said)
    time = step.time if deduplicate is None else deduplicate.time
    rule: Watermark | Inputs = Watermark(ByClock()) if time is TimeDomain.PROCESSING else BY_HAND
    partitions: tuple[str, ...] = ()
    if "watermark" in said:
        if time is TimeDomain.PROCESSING:
            raise said["watermark"].wrong("none: in processing time the clock is the watermark")
        rule, partitions = watermark(said["watermark"])
    fires = said["fires"].one_of(("per_batch", "per_element")) if "fires" in said else "per_batch"
    return StoryPipeline(step, rule, partitions, fires == "per_element", deduplicate)


def _deduplicate(given: Written, said: Mapping[str, Written]) -> Deduplicate:
    fields = said["deduplicate"].only(("keep", "within"), "a deduplication")
    parts: dict[str, Any] = {}
    if "keep" in fields:
        parts["keep"] = Keep(fields["keep"].one_of([*Keep]))
    if "within" in fields:
        parts["within"] = fields["within"].length()
    if "allowed_lateness" in said:
        parts["lateness"] = said["allowed_lateness"].length()
    if "time" in said:
        parts["time"] = TimeDomain(said["time"].one_of([*TimeDomain]))
    with given.telling():
        return Deduplicate(**parts)


def _windowed_step(given: Written, said: Mapping[str, Written]) -> WindowedStep:
    parts: dict[str, Any] = {
        "time": TimeDomain(said["time"].one_of([*TimeDomain])) if "time" in said else TimeDomain.EVENT,
        "lateness": _lateness(said),
    }
    if "aggregate" in said:
        named = said["aggregate"].members("aggregates by name")
        parts["aggregates"] = tuple((name, aggregate(each)) for name, each in named.items())
    words = {"window": window, "trigger": trigger, "evict": evictor}
    parts |= {"evictor" if name == "evict" else name: read(said[name]) for name, read in words.items() if name in said}
    choices = {"accumulation": Accumulation, "pane_timestamp": PaneTimestamp, "on_time_pane": Emit, "final_pane": Emit}
    parts |= {name: kind(said[name].one_of([*kind])) for name, kind in choices.items() if name in said}
    if "ttl" in said:
        parts["ttl"] = said["ttl"].length()
    with given.telling():
        return WindowedStep(**parts)


def _lateness(said: Mapping[str, Written]) -> Lateness:
    rows = LateRows(said["late"].one_of([*LateRows])) if "late" in said else LateRows.PER_ELEMENT
    if "allowed_lateness" not in said:
        return Lateness(rows=rows)
    allowed = said["allowed_lateness"]
    with allowed.telling():
        return Lateness(None if allowed.value == "forever" else allowed.length(), rows)


def _check_names(pipeline: StoryPipeline, steps: tuple[Step, ...]) -> None:
    """Time is moved only where the story may move it, and only of what is known by then.

    Elements and `active` make partitions of a source known; inputs are all known from the start.
    """
    rule = pipeline.watermark
    known = {*pipeline.partitions} if isinstance(rule, Watermark) else {*rule.names}
    for step in steps:
        match step.act:
            case MoveWatermark() if isinstance(rule, Watermark) and not isinstance(rule.generator, FromSource):
                raise InvalidStory(f"{step.place}: the watermark is moved by hand, but the pipeline says how it moves")
            case Feed(elements) if isinstance(rule, Watermark):
                known |= {element.partition for element in elements}
            case Feed(elements) if rule != BY_HAND:
                _check_known(step, known, *(element.partition for element in elements if element.partition))
            case ReturnActive(name) if isinstance(rule, Watermark):
                known.add(name)
            case FallIdle(name) | ReturnActive(name) | Finish(name) | MoveWatermark(of=str(name)):
                _check_known(step, known - {""}, name)
            case _:
                pass


def _check_known(step: Step, known: set[str], *names: str) -> None:
    for name in names:
        if name not in known:
            there = ", ".join(sorted(known)) or "none, the watermark is one and has no name"
            raise InvalidStory(f"{step.place}: no partition or input is called {name!r}", detail=f"known: {there}")
