"""The kernel player: its properties, its errors, and user aggregates on it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import strandline as sl
from strandline.errors import InvalidWatermark
from strandline.model.aggregates import Aggregate
from strandline.model.elements import BEGINNING, END, Duration, Element, TimeDomain, Timestamp
from strandline.model.panes import DeadReason, Emitted, Lateness, LateReason, LateRows
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import BY_HAND, Inputs, by_clock, from_source
from strandline.plan.stories.story_pipeline import GROUPS
from strandline.reference.player import ReferencePlayer
from tests.kernel.players import KernelPlayer

COUNTS = WindowedStep((("n", sl.count()),), sl.tumbling("10s"))


def at(second: float, key: Any = "k", partition: str = "", offset: int = 0, **columns: Any) -> Element:
    return Element(Timestamp(round(second * 1000)), key, columns, partition, offset)


def seconds(number: float) -> Timestamp:
    return Timestamp(round(number * 1000))


def test_a_new_player_has_no_state() -> None:
    player = KernelPlayer(COUNTS, BY_HAND)
    assert (player.watermark, player.output_watermark, player.is_idle, player.rows) == (BEGINNING, BEGINNING, False, 0)
    player.close()


def test_panes_of_all_key_groups_agree_with_the_oracle() -> None:
    keys = ["a", "b", "c", "d", None]
    rows = [at(1, key, offset=place, v=place) for place, key in enumerate(keys)]
    kernel, oracle = KernelPlayer(COUNTS, BY_HAND), ReferencePlayer(COUNTS, BY_HAND)
    kernel.feed(rows)
    oracle.feed(rows)
    assert GROUPS > 1
    assert sorted(kernel.drain().panes, key=str) == sorted(oracle.drain().panes, key=str)


def test_an_element_late_for_some_windows_is_reported_as_partial_if_configured() -> None:
    definition = WindowedStep(
        (("n", sl.count()),), sl.sliding("10s", every="5s"), lateness=Lateness(rows=LateRows.PER_WINDOW)
    )
    player = KernelPlayer(definition, BY_HAND)
    player.move_watermark(seconds(10))
    (late,) = player.feed([at(7, v=1)]).late
    assert late.partial
    assert (late.reason, late.watermark, late.element) == (LateReason.EXPIRED, seconds(10), at(7, v=1))


def test_an_element_late_for_all_windows_names_the_last_of_them() -> None:
    player = KernelPlayer(WindowedStep((("n", sl.count()),), sl.sliding("10s", every="5s")), BY_HAND)
    player.move_watermark(seconds(60))
    (late,) = player.feed([at(7)]).late
    assert late.window is not None
    assert (late.window.end, late.partial) == (seconds(15), False)


def test_inside_a_batch_elements_arrive_by_partition_then_offset() -> None:
    player = KernelPlayer(WindowedStep((("all", sl.collect("v")),), sl.count_window(2)), BY_HAND)
    panes = player.feed([at(9, partition="b", offset=0, v=3), at(5, offset=7, v=2), at(7, offset=6, v=1)]).panes
    assert [pane.values for pane in panes] == [{"all": [2, 1]}]


def test_firing_per_element_plays_one_batch_per_element() -> None:
    definition = replace(COUNTS, trigger=sl.repeatedly(sl.after_count(2)))
    rows = [at(1), at(2, offset=1), at(3, offset=2)]
    assert [pane.values["n"] for pane in KernelPlayer(definition, BY_HAND).feed(rows).panes] == [3]
    single = KernelPlayer(definition, BY_HAND, fires_per_element=True)
    assert [pane.values["n"] for pane in single.feed(rows).panes] == [2]


def test_a_batch_without_elements_emits_nothing() -> None:
    assert KernelPlayer(COUNTS, BY_HAND).feed([]) == Emitted()


def test_processing_time_stamps_elements_with_the_clock() -> None:
    player = KernelPlayer(replace(COUNTS, time=TimeDomain.PROCESSING), by_clock())
    player.move_clock(seconds(15))
    player.feed([Element(BEGINNING, "k")])
    (pane,) = player.move_clock(seconds(20)).panes
    assert (pane.window.start, pane.window.end) == (seconds(10), seconds(20))


def test_the_clock_never_goes_back() -> None:
    player = KernelPlayer(replace(COUNTS, trigger=sl.after_processing_time("5s")), BY_HAND)
    player.move_clock(seconds(10))
    player.feed([at(1)])
    assert player.move_clock(seconds(3)) == Emitted()
    assert [pane.values["n"] for pane in player.move_clock(seconds(16)).panes] == [1]


def test_an_element_beyond_the_future_bound_is_a_dead_letter_only_if_configured() -> None:
    kept = KernelPlayer(COUNTS, sl.bounded("0s").future_bound("5s"))
    assert kept.feed([at(100)]).dead == ()
    assert kept.watermark == Timestamp(4_999)
    strict = KernelPlayer(COUNTS, sl.bounded("0s").future_bound("5s", dead_letter=True))
    emitted = strict.feed([at(100), at(5, offset=1)])
    assert [(letter.reason, letter.columns["at"]) for letter in emitted.dead] == [("future", seconds(100))]
    assert strict.watermark == Timestamp(4_999)


def test_a_dead_letter_from_the_future_does_not_move_time() -> None:
    strict = KernelPlayer(COUNTS, sl.bounded("0s").future_bound("50s", dead_letter=True), partitions=("",))
    strict.feed([at(1)])
    assert [letter.reason for letter in strict.feed([at(100, offset=1)]).dead] == ["future"]
    assert strict.watermark == Timestamp(999)
    assert strict.feed([at(2, offset=2)]).late == ()


def test_a_dead_letter_has_all_columns_that_could_be_read() -> None:
    (letter,) = KernelPlayer(COUNTS, BY_HAND).feed([Element(END, "k", {"v": 3})]).dead
    assert (letter.reason, letter.columns) == (DeadReason.NO_EVENT_TIME, {"key": "k", "v": 3})


def test_open_and_closed_windows_count_as_rows() -> None:
    lateness = Lateness(Duration(60_000))
    definition = WindowedStep((("n", sl.count()),), sl.session("5s"), sl.after_count(1), lateness=lateness)
    player = KernelPlayer(definition, BY_HAND)
    player.feed([at(1), at(20, "other", offset=1)])
    player.feed([at(40, offset=2)])
    assert player.rows == 3
    player.move_watermark(seconds(66))
    assert player.rows == 2


@pytest.mark.parametrize("move", ["fall_idle", "finish"])
def test_an_unknown_partition_raises_an_error(move: str) -> None:
    with pytest.raises(InvalidWatermark, match="no partition or input is called 'p9'") as error:
        getattr(KernelPlayer(COUNTS, from_source(), partitions=["p0"]), move)("p9")
    assert error.value.detail == "known so far: p0"


def test_an_input_cannot_be_added_and_a_partition_can() -> None:
    with pytest.raises(InvalidWatermark, match="'c'"):
        KernelPlayer(COUNTS, Inputs(("a", "b"))).return_active("c")
    with pytest.raises(InvalidWatermark, match="'c'"):
        KernelPlayer(COUNTS, Inputs(("a", "b"))).move_watermark(seconds(1), "c")
    source = KernelPlayer(COUNTS, from_source(), partitions=["p0"])
    source.return_active("p1")
    source.move_watermark(seconds(5), "p0")
    assert source.watermark == BEGINNING


def test_a_watermark_without_a_name_is_set_for_all_unfinished_partitions() -> None:
    player = KernelPlayer(COUNTS, from_source(), partitions=["p0", "p1"])
    player.finish("p1")
    player.move_watermark(seconds(5))
    assert player.watermark == seconds(5)


def test_a_restarted_player_continues_from_the_state_bytes_independently() -> None:
    player = KernelPlayer(COUNTS, BY_HAND)
    player.feed([at(1)])
    again = player.restart()
    again.feed([at(2, offset=1)])
    assert [pane.values["n"] for pane in player.drain().panes] == [1]
    assert [pane.values["n"] for pane in again.drain().panes] == [2]


def test_a_column_that_some_batches_lack_is_null_there() -> None:
    player = KernelPlayer(replace(COUNTS, aggregates=(("all", sl.collect("v")), ("n", sl.count("v")))), BY_HAND)
    player.feed([at(1)])
    player.feed([at(2, offset=1, v=5)])
    player.feed([at(3, offset=2, w="x")])
    (pane,) = player.drain().panes
    assert pane.values == {"all": [None, 5, None], "n": 1}


LONGEST = sl.UserAggregate("word", str, lambda kept, word: max(kept, word, key=len), len, name="longest")
SPREAD = sl.UserAggregate(
    "v",
    lambda: (None, None),
    lambda kept, v: (v if kept[0] is None else min(kept[0], v), v if kept[1] is None else max(kept[1], v)),
    lambda kept: None if kept[0] is None else kept[1] - kept[0],
    lambda a, b: (
        min((x for x in (a[0], b[0]) if x is not None), default=None),
        max((x for x in (a[1], b[1]) if x is not None), default=None),
    ),
    name="spread",
)
IN_ORDER = sl.UserAggregate(
    "v", tuple, lambda kept, v: (*kept, v), lambda kept: "".join(map(str, kept)), lambda a, b: a + b, name="in order"
)
WORDS = ["", "ab", "abcd", None, "a", "abc", None, "x", "abcde", "yz"]
SPEAKING = sl.after_watermark(early=sl.after_count(2), late=sl.after_count(1))


def users(make: Callable[..., Any], definition: WindowedStep, restarts: bool) -> list[Emitted]:
    """Play ten elements in four batches; the third is behind the watermark."""
    rows = [at(n % 7, "ab"[n % 2], offset=n, v=n * 7 % 5, word=word) for n, word in enumerate(WORDS)]
    player = make(definition, BY_HAND)
    actual = []
    for first, last, watermark in ((0, 4, 3), (4, 7, 12), (7, 8, 13), (8, 10, 14)):
        actual += [player.feed(rows[first:last]), player.move_watermark(seconds(watermark))]
        player = player.restart() if restarts else player
    return [*actual, player.drain()]


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True], ids=["straight on", "restarted after each batch"])
@pytest.mark.parametrize("window", [sl.tumbling("5s"), sl.session("2s"), sl.sliding("4s", every="2s"), sl.everything()])
@pytest.mark.parametrize("how", [sl.discarding, sl.accumulating, sl.retracting])
def test_user_aggregates_agree_with_the_oracle(window: Any, how: Any, restarts: bool) -> None:
    aggregates: Sequence[tuple[str, Aggregate]] = (("long", LONGEST), ("spread", SPREAD), ("order", IN_ORDER))
    definition = WindowedStep(tuple(aggregates), window, SPEAKING, how, Lateness(Duration(20_000)))
    actual, expected = users(KernelPlayer, definition, restarts), users(ReferencePlayer, definition, restarts)
    for mine, oracles in zip(actual, expected, strict=True):
        assert sorted(mine.panes, key=lambda pane: str(pane.key)) == list(oracles.panes)
    assert any(each.panes for each in expected)


def test_a_user_aggregate_without_a_merge_is_not_pre_aggregated() -> None:
    definition = replace(COUNTS, aggregates=(("long", LONGEST), ("n", sl.count())), evictor=sl.keep_last(2))
    actual, expected = users(KernelPlayer, definition, False), users(ReferencePlayer, definition, False)
    assert [each.panes for each in actual] == [each.panes for each in expected]
