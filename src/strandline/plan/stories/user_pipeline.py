"""Play a pipeline of a user in a story: find it, and parse its elements by the columns of its sources."""

from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from strandline.errors import InvalidStory, SetupError
from strandline.model.elements import BEGINNING, Element
from strandline.plan.endpoints import Delivery, Source
from strandline.plan.import_path import object_at
from strandline.plan.nodes import Write, outputs_of
from strandline.plan.pipeline import Elements, Panes, Pipeline
from strandline.plan.stories.located_values import Written
from strandline.plan.stories.parse_steps import partition_of
from strandline.plan.stories.story_pipeline import StoryPipeline, StorySink, short_name

USUAL = "pipeline"
"""The name in a module, if a story names only the module."""


def user_pipeline(given: Written, folder: Path | None = None) -> StoryPipeline:
    """Return the plan of a user's pipeline: an import path, a pipeline, or a function that returns one."""
    found = _found(given, folder)
    if callable(found) and not isinstance(found, Pipeline | Elements | Panes):
        found = found()
    match found:
        case Pipeline(root):
            return StoryPipeline(root, output_names=_output_names(found))
        case Elements(root) | Panes(root):
            return StoryPipeline(Write(root, StorySink(""), Delivery.EXACTLY_ONCE))
    what = "nothing" if found is None else f"a {type(found).__name__}"
    raise InvalidStory(
        f"{given.place}: {_shown(given)} is not a pipeline",
        detail=f"it is {what}",
        hint="give a pipeline, a stream, or a function that returns one, as in pipeline.py:pipeline",
    )


def names_a_pipeline(given: Written) -> bool:
    """Tell whether a story names a pipeline of the user instead of defining one."""
    return given.value is not None and not isinstance(given.value, dict | list | int | float)


def _found(given: Written, folder: Path | None) -> Any:
    if not isinstance(given.value, str):
        return given.value
    try:
        return object_at(given.value, USUAL, folder)
    except SetupError as problem:
        raise InvalidStory(f"{given.place}: {problem.message}", detail=problem.detail, hint=problem.hint) from None


def _shown(given: Written) -> str:
    return given.value if isinstance(given.value, str) else repr(given.value)


def _output_names(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the names of outputs: those of their sinks, numbered where several are equal. One alone has none."""
    plain = StoryPipeline(pipeline.root)
    outputs = plain.stages.outputs
    if len(outputs) == 1:
        return ("",)
    assert len(outputs) >= len(outputs_of(pipeline.root))  # noqa: S101 - sinks of late elements follow
    names = [short_name(each.sink.name) for each in outputs]
    seen = Counter[str]()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if names.count(name) == 1 else f"{name} {seen[name]}")
    return tuple(found)


def element_of(source: Source) -> Callable[[Written], Element]:
    """Return the function that parses an element of a source: its columns, with values of their types."""
    types = source.types

    def parse(given: Written) -> Element:
        members = given.members_among((*types, "partition"), f"an element of {source.name}")
        columns = {name: _value(each, types.get(name, "string")) for name, each in members.items()}
        partition = partition_of(given, columns)
        return Element(at=BEGINNING, key=None, columns=columns, partition=partition)

    return parse


def _value(given: Written, kind: str) -> Any:
    """Parse a value of a column. A time is written as everywhere in a story: `26s`, or an ISO text."""
    if given.value is None:
        return None
    match kind.partition("(")[0].strip().lower():
        case "timestamp" | "timestamp_ntz":
            return given.time()
        case "string":
            return given.text()
        case "long" | "bigint" | "int" | "integer" | "short" | "smallint" | "byte" | "tinyint":
            return given.integer()
        case "double" | "float":
            return float(given.number())
        case "boolean":
            return given.boolean()
        case "decimal":
            return Decimal(str(given.plain()))
        case "date":
            return _date(given)
        case "binary":
            return given.text().encode()
    return given.plain()


def _date(given: Written) -> date:
    try:
        return date.fromisoformat(given.text("a date, such as 2026-01-31"))
    except ValueError:
        raise given.error("a date, such as 2026-01-31") from None
