"""The stories together are the specification: every word of the format stands in one of them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, Final, get_args, get_type_hints

import pytest
import yaml

from strandline.model import aggregates, evictors, panes, triggers, windows
from strandline.model.elements import TimeDomain

FOLDER: Final = Path(__file__).parent
LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""As stories are read: libyaml's, where it is there, is ten times as fast."""
STORIES: Final[list[dict[str, Any]]] = [
    story
    for path in sorted(FOLDER.rglob("*.story.yaml"))
    for story in yaml.load_all(path.read_text(encoding="utf-8"), Loader=LOADER)
]
HOLDING: Final = [story for story in STORIES if "fails" not in story]
"""Stories that hold; a word that is only refused somewhere is not shown."""

COMBINATORS: Final = ("repeatedly", "first_of", "all_of", "in_sequence", "or_finally")
STEPS: Final = (
    "input", "watermark", "clock", "idle", "active", "finish", "drain", "restart", "ignore",
    "expect", "expect_some", "expect_late", "expect_dead", "expect_watermark", "expect_output_watermark",
    "expect_idle", "expect_state",
)  # fmt: skip
FIELDS: Final = (
    "window", "time", "trigger", "accumulation", "allowed_lateness", "aggregate", "pane_timestamp", "on_time_pane",
    "final_pane", "late", "evict", "watermark", "fires", "ttl", "inputs", "operators", "key",
)  # fmt: skip
STRATEGIES: Final = (
    "bounded", "percentile", "from_source", "inputs", "idle_after", "future", "future_dead_letter", "on_return",
)  # fmt: skip
PANE_FIELDS: Final = (
    "key", "window", "timing", "index", "nonspeculative_index", "first", "last", "timestamp", "retraction",
)  # fmt: skip


def words(union: Any, module: Any) -> list[str]:
    """The words of a family: the functions that make its members, for all members that a story can name."""
    members = set(get_args(union))
    found = {
        made: name
        for name, function in vars(module).items()
        if isinstance(function, FunctionType) and not name.startswith("_")
        for made in [get_type_hints(function).get("return")]
        if made in members and name not in ("every", "continued")
    }
    return sorted(found.values())


def nodes(trigger: Any, inside: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every trigger of a tree by its word, with the words of those around it."""
    if isinstance(trigger, str):
        yield trigger, inside
        return
    ((word, of),) = trigger.items()
    yield word, inside
    if word in COMBINATORS:
        for part in of if isinstance(of, list) else [of]:
            yield from nodes(part, (*inside, word))
    elif word == "after_watermark" and isinstance(of, Mapping):
        for part in of.values():
            yield from nodes(part, (*inside, word))


def pipelines() -> list[dict[str, Any]]:
    """The pipelines that stories write out; some play a pipeline of a module."""
    found = [story.get("pipeline") or {} for story in HOLDING]
    return [each for each in found if isinstance(each, dict)]


def trigger_nodes() -> list[tuple[str, tuple[str, ...]]]:
    return [node for pipeline in pipelines() if "trigger" in pipeline for node in nodes(pipeline["trigger"])]


def expected_panes() -> list[dict[str, Any]]:
    return [pane for story in HOLDING for step in story["steps"] for pane in step.get("expect") or []]


def test_there_are_at_least_150_stories() -> None:
    assert len(STORIES) >= 150


def test_titles_are_unique() -> None:
    titles = [story["story"] for story in STORIES]
    assert sorted(set(titles)) == sorted(titles)


@pytest.mark.parametrize("title", [story["story"] for story in STORIES])
def test_a_title_is_a_sentence(title: str) -> None:
    assert len(title.split()) >= 5, "a sentence has a few words"
    assert not title.endswith("."), "the page puts the full stop"
    assert title[0].islower(), "the page puts the capital"


def test_every_story_names_its_rule() -> None:
    assert [story["story"] for story in STORIES if not story.get("rule")] == []


@pytest.mark.parametrize("word", words(triggers.Trigger, triggers))
def test_every_trigger_stands_alone_and_in_another(word: str) -> None:
    around = [inside for found, inside in trigger_nodes() if found == word]
    assert () in around, "as the whole trigger"
    assert any(len(inside) >= 2 for inside in around), "two deep"


@pytest.mark.parametrize("word", COMBINATORS)
def test_every_combinator_stands_inside_another_and_holds_another(word: str) -> None:
    pairs = {(inside[-1], found) for found, inside in trigger_nodes() if inside}
    assert any(found == word and around != word for around, found in pairs)
    assert any(around == word and found in COMBINATORS and found != word for around, found in pairs)


@pytest.mark.parametrize("part", ["early", "late"])
def test_after_watermark_has_both_its_parts_somewhere(part: str) -> None:
    given = [pipeline["trigger"] for pipeline in pipelines() if "trigger" in pipeline]
    assert any(isinstance(one, dict) and part in (one.get("after_watermark") or {}) for one in given)


@pytest.mark.parametrize("word", words(windows.WindowKind, windows))
def test_every_window_has_a_story(word: str) -> None:
    said = {"count_window": "count", "everything": "global"}.get(word, word)
    kinds = [pipeline.get("window") for pipeline in pipelines()]
    assert any(kind == said or (isinstance(kind, dict) and said in kind) for kind in kinds)


@pytest.mark.parametrize("option", ["offset", "every", "step", "touching"])
def test_every_option_of_a_window_has_a_story(option: str) -> None:
    assert any(isinstance(pipeline.get("window"), dict) and option in pipeline["window"] for pipeline in pipelines())


@pytest.mark.parametrize("word", words(aggregates.Aggregate, aggregates))
def test_every_aggregate_has_a_story(word: str) -> None:
    asked = [aggregate for pipeline in pipelines() for aggregate in (pipeline.get("aggregate") or {}).values()]
    assert any(word in aggregate for aggregate in asked)


@pytest.mark.parametrize("word", words(evictors.Evictor, evictors))
@pytest.mark.parametrize("moment", [moment.value for moment in evictors.Moment])
def test_every_evictor_runs_before_and_after(word: str, moment: str) -> None:
    asked = [pipeline["evict"] for pipeline in pipelines() if "evict" in pipeline]
    assert any(word in evict and evict.get("when") == moment for evict in asked)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("accumulation", mode.value) for mode in panes.Accumulation),
        *(("pane_timestamp", choice.value) for choice in panes.PaneTimestamp),
        *(("on_time_pane", choice.value) for choice in panes.Emit),
        *(("final_pane", choice.value) for choice in panes.Emit),
        *(("late", choice.value) for choice in panes.LateRows),
        *(("time", domain.value) for domain in TimeDomain),
        ("fires", "per_batch"),
        ("fires", "per_element"),
        ("allowed_lateness", "forever"),
    ],
)
def test_every_choice_has_a_story(field: str, value: str) -> None:
    assert any(pipeline.get(field) == value for pipeline in pipelines())


@pytest.mark.parametrize("mode", [mode.value for mode in panes.Accumulation])
def test_merging_sessions_are_told_in_every_accumulation(mode: str) -> None:
    sessions = [pipeline for pipeline in pipelines() if "session" in str(pipeline.get("window"))]
    assert any(pipeline.get("accumulation", "discarding") == mode for pipeline in sessions)


@pytest.mark.parametrize("word", STRATEGIES)
def test_every_watermark_strategy_has_a_story(word: str) -> None:
    assert any(word in (pipeline.get("watermark") or {}) for pipeline in pipelines())


@pytest.mark.parametrize("word", STEPS)
def test_every_step_has_a_story(word: str) -> None:
    assert any(word in step for story in HOLDING for step in story["steps"])


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_of_a_pipeline_has_a_story(field: str) -> None:
    assert any(field in pipeline for pipeline in pipelines())


@pytest.mark.parametrize("field", PANE_FIELDS)
def test_every_field_of_a_pane_is_expected_somewhere(field: str) -> None:
    assert any(field in pane for pane in expected_panes())


@pytest.mark.parametrize("timing", [timing.value for timing in panes.Timing])
def test_every_timing_is_expected_somewhere(timing: str) -> None:
    assert any(pane.get("timing") == timing for pane in expected_panes())


@pytest.mark.parametrize("reason", ["expired", "closed"])
def test_every_reason_of_windows_is_expected_somewhere(reason: str) -> None:
    late = [row for story in HOLDING for step in story["steps"] for row in step.get("expect_late") or []]
    assert any(row.get("reason") == reason for row in late)
