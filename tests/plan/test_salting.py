"""Where hot keys are salted, where that would bring nothing, and where it cannot be."""

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


def listed(said: Keyed) -> Pipeline:
    return said.aggregate(all=sl.collect("score")).write(PaperSink())


def test_a_step_that_keeps_every_element_becomes_two() -> None:
    stages = to_stages(listed(keyed().hot_keys(salt=16)).root)
    held, gathered = stages.steps
    assert (held.keys, gathered.keys) == (("team", "@salt"), ("team",))
    assert (held.level, gathered.level) == (1, 2)
    assert isinstance(gathered.operator, WindowedStep)
    assert [name for name, _ in gathered.operator.aggregates] == ["all"]


def test_it_is_told_where_hot_keys_are_spread_and_gathered() -> None:
    told = listed(keyed().hot_keys(salt=16)).explain()
    assert "hot keys of team spread over 16" in told
    assert "panes, gathered go on by team to keyed 1" in told


@pytest.mark.parametrize("aggregate", [sl.sum("score"), sl.count_distinct("user"), sl.quantile("score", 0.5)])
def test_what_is_combined_before_the_shuffle_stays_as_it_was(aggregate: Aggregate) -> None:
    plain, allowed = (each.aggregate(answer=aggregate).write(PaperSink()) for each in (keyed(), keyed().hot_keys()))
    assert to_stages(allowed.root) == to_stages(plain.root)


def test_a_job_without_salt_is_the_job_it_was() -> None:
    assert to_stages(listed(keyed()).root).steps[0].keys == ("team",)
    assert len(to_stages(listed(keyed()).root).steps) == 1


def test_types_of_answers_are_the_same_with_salt() -> None:
    plain, salted = (listed(each).root for each in (keyed(), keyed().hot_keys()))
    assert isinstance(plain, Write)
    assert isinstance(salted, Write)
    assert columns_after(salted.of) == columns_after(plain.of)


def test_what_a_checkpoint_writes_down_has_both_steps() -> None:
    definition = read_definition(to_plain(listed(keyed().hot_keys()).root))
    assert [step["keys"] for step in definition.steps] == [["team", "@salt"], ["team"]]


early = sl.after_watermark(early=sl.every(seconds=5), late=sl.after_count(1))
CASES: dict[str, tuple[Callable[[], Pipeline], str]] = {
    "sessions": (lambda: listed(keyed().window(sl.session(minutes=1)).hot_keys()), "where a session ends"),
    "counts": (lambda: listed(keyed().window(sl.count_window(9)).hot_keys()), "order of arrival of all its elements"),
    "everything": (
        lambda: listed(keyed().window(sl.everything()).keep_for_ever().hot_keys()),
        "would be held for ever",
    ),
    "columns": (lambda: listed(keyed().window(sl.custom(start="at", end="at")).hot_keys()), "may have ended before"),
    "early answers": (lambda: listed(keyed().trigger(early).hot_keys()), "speaks before the end of a window"),
    "closing": (
        lambda: listed(keyed().trigger(sl.after_watermark(), may_close=True).hot_keys()),
        "speaks before the end of a window, or closes it",
    ),
    "by arrival": (lambda: listed(keyed().evict(sl.keep_last(3)).hot_keys()), "its evictor goes by the order"),
    "stamps": (lambda: listed(keyed().stamp_panes("latest").hot_keys()), "its panes are stamped by elements"),
    "the clock": (
        lambda: listed(scores().processing_time().key_by("team").window(sl.tumbling(minutes=1)).hot_keys()),
        "by the clock windows end with the batch",
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
def test_what_cannot_be_spread_is_refused_with_its_reason(case: str) -> None:
    pipeline, said = CASES[case]
    with pytest.raises(InvalidStep, match="cannot be salted") as refused:
        to_stages(pipeline().root)
    assert said in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("salt", [0, 1, 257])
def test_a_salt_must_spread(salt: int) -> None:
    with pytest.raises(InvalidStep, match="cannot be spread over"):
        keyed().hot_keys(salt=salt)
