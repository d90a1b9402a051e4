"""Parse a story from YAML or from a mapping: a pipeline, and the steps that are played on it."""

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
"""`fails: expectation`: an expectation fails."""


@dataclass(frozen=True, slots=True)
class StoryPipeline:
    """The pipeline of a story: the operator, the rule of its watermark, and whether each element is a batch."""

    step: WindowedStep = WindowedStep()
    watermark: Watermark | Inputs = BY_HAND
    partitions: tuple[str, ...] = ()
    fires_per_element: bool = False
    deduplicate: Deduplicate | None = None
    """Replaces the windowed step."""

    @property
    def operator(self) -> Operator:
        return self.step if self.deduplicate is None else self.deduplicate


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
    return [_story(document) for document in documents]


def to_story(given: Mapping[str, Any], place: str = "story") -> Story:
    """Parse a story from a mapping with the structure of the YAML."""
    return _story(from_value(given, place))


def story_over(pipeline: StoryPipeline, steps: Sequence[Mapping[str, Any]], name: str) -> Story:
    """Parse a story over a pipeline from code; its steps are mappings with the structure of the YAML."""
    return Story(name, pipeline, _steps(pipeline, from_value(list(steps), "steps")), place=name)


def _steps(pipeline: StoryPipeline, given: Written) -> tuple[Step, ...]:
    names = [] if pipeline.deduplicate is not None else [name for name, _ in pipeline.step.aggregates]
    steps = steps_of(given, names, has_windows=pipeline.deduplicate is None)
    _check_names(pipeline, steps)
    return steps


def _story(given: Written) -> Story:
    members = given.members_among(("story", "rule", "pipeline", "fails", "steps"), "a story")
    name = given.required(members, "story").text()
    fails = members["fails"].text("'expectation', or the text of an error") if "fails" in members else None
    try:
        pipeline = to_pipeline(members.get("pipeline", Written({}, given.place)))
        steps = _steps(pipeline, given.required(members, "steps"))
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
    """Parse the pipeline of a story; every field has a default."""
    for word in ("join", "pattern"):
        if word in given.members("a pipeline, as a mapping"):
            raise Unsupported(f"{given.place}: stories cannot play a {word} yet", hint="use a window or deduplicate")
    without_windows = "deduplicate" in given.members("a pipeline, as a mapping")
    settings = given.members_among(_DEDUPLICATE_FIELDS if without_windows else _FIELDS, "a pipeline")
    deduplicate = _deduplicate(given, settings) if without_windows else None
    step = WindowedStep() if without_windows else _windowed_step(given, settings)
    time = step.time if deduplicate is None else deduplicate.time
    rule: Watermark | Inputs = Watermark(ByClock()) if time is TimeDomain.PROCESSING else BY_HAND
    partitions: tuple[str, ...] = ()
    if "watermark" in settings:
        if time is TimeDomain.PROCESSING:
            raise settings["watermark"].error("none: in processing time the clock is the watermark")
        rule, partitions = watermark(settings["watermark"])
    fires = settings["fires"].one_of(("per_batch", "per_element")) if "fires" in settings else "per_batch"
    return StoryPipeline(step, rule, partitions, fires == "per_element", deduplicate)


def _deduplicate(given: Written, settings: Mapping[str, Written]) -> Deduplicate:
    fields = settings["deduplicate"].members_among(("keep", "within"), "a deduplication")
    parts: dict[str, Any] = {}
    if "keep" in fields:
        parts["keep"] = Keep(fields["keep"].one_of([*Keep]))
    if "within" in fields:
        parts["within"] = fields["within"].length()
    if "allowed_lateness" in settings:
        parts["lateness"] = settings["allowed_lateness"].length()
    if "time" in settings:
        parts["time"] = TimeDomain(settings["time"].one_of([*TimeDomain]))
    with given.locating():
        return Deduplicate(**parts)


def _windowed_step(given: Written, settings: Mapping[str, Written]) -> WindowedStep:
    parts: dict[str, Any] = {
        "time": TimeDomain(settings["time"].one_of([*TimeDomain])) if "time" in settings else TimeDomain.EVENT,
        "lateness": _lateness(settings),
    }
    if "aggregate" in settings:
        named = settings["aggregate"].members("aggregates by name")
        parts["aggregates"] = tuple((name, aggregate(each)) for name, each in named.items())
    parsers = {"window": window, "trigger": trigger, "evict": evictor}
    parts |= {
        "evictor" if name == "evict" else name: read(settings[name])
        for name, read in parsers.items()
        if name in settings
    }
    choices = {"accumulation": Accumulation, "pane_timestamp": PaneTimestamp, "on_time_pane": Emit, "final_pane": Emit}
    parts |= {name: kind(settings[name].one_of([*kind])) for name, kind in choices.items() if name in settings}
    if "ttl" in settings:
        parts["ttl"] = settings["ttl"].length()
    with given.locating():
        return WindowedStep(**parts)


def _lateness(settings: Mapping[str, Written]) -> Lateness:
    rows = LateRows(settings["late"].one_of([*LateRows])) if "late" in settings else LateRows.PER_ELEMENT
    if "allowed_lateness" not in settings:
        return Lateness(rows=rows)
    allowed = settings["allowed_lateness"]
    with allowed.locating():
        return Lateness(None if allowed.value == "forever" else allowed.length(), rows)


def _check_names(pipeline: StoryPipeline, steps: tuple[Step, ...]) -> None:
    """Check that steps move only a watermark that the story controls, of partitions and inputs known by then.

    Elements and `active` make partitions of a source known; inputs are all known from the start.
    """
    rule = pipeline.watermark
    known = {*pipeline.partitions} if isinstance(rule, Watermark) else {*rule.names}
    for step in steps:
        match step.act:
            case MoveWatermark() if isinstance(rule, Watermark) and not isinstance(rule.generator, FromSource):
                raise InvalidStory(f"{step.place}: a step moves the watermark, but the pipeline has a rule for it")
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
            names_known = ", ".join(sorted(known)) or "none; the pipeline has one watermark without a name"
            raise InvalidStory(
                f"{step.place}: no partition or input is called {name!r}", detail=f"known: {names_known}"
            )
