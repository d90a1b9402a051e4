"""Which steps are salted, which do not need it, and which cannot be salted."""

from collections.abc import Callable

import pytest

import strandline as sl
from strandline.errors import InvalidStep
from strandline.model.aggregates import Aggregate
from strandline.model.steps import WindowedStep
from strandline.plan.columns import columns_after
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Write, to_plain
from strandline.plan.pipeline import Keyed, Pipeline
from strandline.plan.upgrade.definitions import read_definition
from tests.plan.endpoints import PaperSink, scores

WATERMARK = sl.bounded(seconds=10)


def keyed() -> Keyed:
    return scores().event_time("at", WATERMARK).key_by("team").window(sl.tumbling(minutes=1)).allow_lateness(minutes=1)


def listed(step: Keyed) -> Pipeline:
    return step.aggregate(all=sl.collect("score")).write(PaperSink())


def test_a_step_that_keeps_every_element_becomes_two() -> None:
    stages = to_stages(listed(keyed().hot_keys(salt=16)).root)
    held, gathered = stages.steps
    assert (held.keys, gathered.keys) == (("team", "@salt"), ("team",))
    assert (held.level, gathered.level) == (1, 2)
    assert isinstance(gathered.operator, WindowedStep)
    assert [name for name, _ in gathered.operator.aggregates] == ["all"]


def test_explain_shows_where_hot_keys_are_salted_and_unpacked() -> None:
    text = listed(keyed().hot_keys(salt=16)).explain()
    assert "salt hot keys of team with 16 salts" in text
    assert "panes, unpack salted elements go to keyed 1 by team" in text


@pytest.mark.parametrize("aggregate", [sl.sum("score"), sl.count_distinct("user"), sl.quantile("score", 0.5)])
def test_steps_with_pre_aggregation_are_not_salted(aggregate: Aggregate) -> None:
    plain, allowed = (each.aggregate(answer=aggregate).write(PaperSink()) for each in (keyed(), keyed().hot_keys()))
    assert to_stages(allowed.root) == to_stages(plain.root)


def test_without_hot_keys_there_is_one_step() -> None:
    assert to_stages(listed(keyed()).root).steps[0].keys == ("team",)
    assert len(to_stages(listed(keyed()).root).steps) == 1


def test_salting_does_not_change_column_types() -> None:
    plain, salted = (listed(each).root for each in (keyed(), keyed().hot_keys()))
    assert isinstance(plain, Write)
    assert isinstance(salted, Write)
    assert columns_after(salted.of) == columns_after(plain.of)


def test_the_stored_definition_has_both_steps() -> None:
    definition = read_definition(to_plain(listed(keyed().hot_keys()).root))
    assert [step["keys"] for step in definition.steps] == [["team", "@salt"], ["team"]]


early = sl.after_watermark(early=sl.every(seconds=5), late=sl.after_count(1))
CASES: dict[str, tuple[Callable[[], Pipeline], str]] = {
    "sessions": (lambda: listed(keyed().window(sl.session(minutes=1)).hot_keys()), "the end of a session"),
    "counts": (lambda: listed(keyed().window(sl.count_window(9)).hot_keys()), "arrival order of all its elements"),
    "everything": (
        lambda: listed(keyed().window(sl.everything()).keep_for_ever().hot_keys()),
        "would be held forever",
    ),
    "columns": (lambda: listed(keyed().window(sl.custom(start="at", end="at")).hot_keys()), "may end before"),
    "early answers": (lambda: listed(keyed().trigger(early).hot_keys()), "fire before the end of a window"),
    "closing": (
        lambda: listed(keyed().trigger(sl.after_watermark(), may_close=True).hot_keys()),
        "fire before the end of a window, or closes it",
    ),
    "by arrival": (lambda: listed(keyed().evict(sl.keep_last(3)).hot_keys()), "its evictor depends on arrival order"),
    "stamps": (lambda: listed(keyed().stamp_panes("latest").hot_keys()), "its panes have the time of elements"),
    "the clock": (
        lambda: listed(scores().processing_time().key_by("team").window(sl.tumbling(minutes=1)).hot_keys()),
        "in processing time windows end with the batch",
    ),
    "panes": (
        lambda: (
            keyed()
            .aggregate(plays=sl.count())
            .key_by("team", even_repeated=True)
            .window(sl.tumbling(minutes=5))
            .hot_keys()
            .aggregate(all=sl.collect("plays"))
            .write(PaperSink())
        ),
        "are panes of another step",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_steps_that_cannot_be_salted_are_refused_with_the_reason(case: str) -> None:
    pipeline, reason = CASES[case]
    with pytest.raises(InvalidStep, match="cannot be salted") as refused:
        to_stages(pipeline().root)
    assert reason in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("salt", [0, 1, 257])
def test_a_salt_has_bounds(salt: int) -> None:
    with pytest.raises(InvalidStep, match="is out of range"):
        keyed().hot_keys(salt=salt)
