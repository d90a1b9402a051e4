"""The oracle as a player: its properties, its errors, and its counts."""

import json

import pytest

from strandline.errors import InvalidWatermark
from strandline.model.aggregates import Collect, Count
from strandline.model.elements import BEGINNING, END, Duration, Element, TimeDomain, Timestamp
from strandline.model.panes import Accumulation, Lateness, LateReason, LateRows, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import after_count, repeatedly, when
from strandline.model.watermarks import BY_HAND, Inputs, bounded, by_clock, from_source
from strandline.model.windows import count_window, session, sliding, tumbling
from strandline.reference.player import ReferencePlayer

COUNTS = WindowedStep((("n", Count()),), tumbling("10s"))


def at(second: float, key: object = "k", partition: str = "", offset: int = 0, **columns: object) -> Element:
    return Element(Timestamp(round(second * 1000)), key, columns, partition, offset)


def seconds(number: float) -> Timestamp:
    return Timestamp(round(number * 1000))


def test_a_new_player_holds_nothing() -> None:
    player = ReferencePlayer(COUNTS, BY_HAND)
    assert (player.watermark, player.output_watermark, player.is_idle, player.rows) == (BEGINNING, BEGINNING, False, 0)


def test_every_element_is_counted_by_outcome() -> None:
    ask = WindowedStep((("n", Count()),), sliding("5s", every="10s"), repeatedly(after_count(1)))
    player = ReferencePlayer(ask, BY_HAND)
    player.move_watermark(seconds(20))
    player.feed([at(21), at(27), at(1), Element(END, "k"), at(22)])
    tally = player.tally
    assert (tally.elements, tally.contributed, tally.filtered) == (5, 2, 1)
    assert (tally.late, tally.dead) == ({"expired": 1}, {"no_event_time": 1})
    assert tally.is_conserved


def test_an_element_refused_by_some_windows_contributes_and_is_partial_if_configured() -> None:
    ask = WindowedStep((("n", Count()),), sliding("10s", every="5s"), lateness=Lateness(rows=LateRows.PER_WINDOW))
    player = ReferencePlayer(ask, BY_HAND)
    player.move_watermark(seconds(10))
    (late,) = player.feed([at(7)]).late
    assert late.partial
    assert (late.reason, late.watermark) == (LateReason.EXPIRED, seconds(10))
    assert (player.tally.contributed, player.tally.late) == (1, {})


def test_an_element_refused_by_all_names_the_window_that_expired_last() -> None:
    player = ReferencePlayer(WindowedStep((("n", Count()),), sliding("10s", every="5s")), BY_HAND)
    player.move_watermark(seconds(60))
    (late,) = player.feed([at(7)]).late
    assert late.window is not None
    assert (late.window.end, late.partial) == (seconds(15), False)


def test_keys_of_all_types_are_distinct() -> None:
    player = ReferencePlayer(COUNTS, BY_HAND)
    keys = [None, True, 1, 1.5, "1", ["a", 1], {"a": 1}]
    player.feed([at(1, key) for key in keys] + [at(2, 1.0)])
    panes = player.drain().panes
    assert [pane.key for pane in panes] == keys
    assert [pane.values["n"] for pane in panes] == [1, 1, 2, 1, 1, 1, 1]


def test_inside_a_batch_elements_arrive_by_partition_then_offset() -> None:
    player = ReferencePlayer(WindowedStep((("all", Collect("v")),), count_window(2)), BY_HAND)
    panes = player.feed([at(9, partition="b", offset=0, v=3), at(5, offset=7, v=2), at(7, offset=6, v=1)]).panes
    assert [pane.values for pane in panes] == [{"all": [2, 1]}]


def test_one_element_at_a_time_is_a_batch_for_each() -> None:
    ask = WindowedStep((("n", Count()),), tumbling("10s"), repeatedly(after_count(2)))
    rows = [at(1), at(2), at(3)]
    assert [pane.values["n"] for pane in ReferencePlayer(ask, BY_HAND).feed(rows).panes] == [3]
    single = ReferencePlayer(ask, BY_HAND, fires_per_element=True)
    assert [pane.values["n"] for pane in single.feed(rows).panes] == [2]


def test_since_counts_from_the_last_firing_when_accumulating() -> None:
    ask = WindowedStep(
        (("n", Count()),), trigger=repeatedly(when("since >= 2")), accumulation=Accumulation.ACCUMULATING
    )
    player = ReferencePlayer(ask, BY_HAND)
    output = [player.feed([at(second)]).panes for second in range(1, 5)]
    assert [[pane.values["n"] for pane in panes] for panes in output] == [[], [2], [], [4]]


def test_processing_time_stamps_elements_with_the_clock() -> None:
    ask = WindowedStep((("n", Count()),), tumbling("10s"), time=TimeDomain.PROCESSING)
    player = ReferencePlayer(ask, by_clock())
    player.move_clock(seconds(15))
    player.feed([Element(BEGINNING, "k")])
    (pane,) = player.move_clock(seconds(20)).panes
    assert (pane.window.start, pane.window.end) == (seconds(10), seconds(20))


def test_an_element_too_far_ahead_is_a_dead_letter_only_if_configured() -> None:
    kept = ReferencePlayer(COUNTS, bounded("0s").future_bound("5s"))
    assert kept.feed([at(100)]).dead == ()
    assert kept.watermark == Timestamp(4_999)
    strict = ReferencePlayer(COUNTS, bounded("0s").future_bound("5s", dead_letter=True))
    emitted = strict.feed([at(100), at(5)])
    assert [(letter.reason, letter.columns["at"]) for letter in emitted.dead] == [("future", seconds(100))]
    assert strict.watermark == Timestamp(4_999)


def test_a_count_window_has_the_time_of_its_latest_or_earliest_element_and_holds_nothing_back() -> None:
    for timestamp, output in ((PaneTimestamp.END_OF_WINDOW, 9), (PaneTimestamp.LATEST, 9), (PaneTimestamp.EARLIEST, 2)):
        player = ReferencePlayer(WindowedStep((("n", Count()),), count_window(2), pane_timestamp=timestamp), BY_HAND)
        player.feed([at(9)])
        player.move_watermark(seconds(20))
        assert player.output_watermark == seconds(20)
        (pane,) = player.feed([at(2)]).panes
        assert (pane.timestamp, pane.window.start.ms, pane.window.end.ms) == (seconds(output), 0, 2)


def test_a_counting_key_is_one_row_until_the_end() -> None:
    player = ReferencePlayer(WindowedStep((("n", Count()),), count_window(2)), BY_HAND)
    player.feed([at(1), at(2)])
    assert player.rows == 1
    player.drain()
    assert player.rows == 0


def test_open_windows_and_marks_of_closed_ones_are_rows() -> None:
    ask = WindowedStep((("n", Count()),), session("5s"), after_count(1), lateness=Lateness(Duration(60_000)))
    player = ReferencePlayer(ask, BY_HAND)
    player.feed([at(1), at(20, "other")])
    player.feed([at(40)])
    assert player.rows == 3
    player.move_watermark(seconds(66))
    assert player.rows == 2


@pytest.mark.parametrize("move", ["fall_idle", "finish"])
def test_an_unknown_partition_is_refused(move: str) -> None:
    with pytest.raises(InvalidWatermark, match="no partition or input is called 'p9'") as error:
        getattr(ReferencePlayer(COUNTS, from_source(), partitions=["p0"]), move)("p9")
    assert error.value.detail == "known so far: p0"


def test_an_input_cannot_be_added_and_a_partition_can() -> None:
    with pytest.raises(InvalidWatermark, match="'c'"):
        ReferencePlayer(COUNTS, Inputs(("a", "b"))).return_active("c")
    with pytest.raises(InvalidWatermark, match="'c'"):
        ReferencePlayer(COUNTS, Inputs(("a", "b"))).move_watermark(seconds(1), "c")
    source = ReferencePlayer(COUNTS, from_source(), partitions=["p0"])
    source.return_active("p1")
    source.move_watermark(seconds(5), "p0")
    assert source.watermark == BEGINNING


def test_a_watermark_without_a_name_moves_all_unfinished_partitions() -> None:
    player = ReferencePlayer(COUNTS, from_source(), partitions=["p0", "p1"])
    player.finish("p1")
    player.move_watermark(seconds(5))
    assert player.watermark == seconds(5)


def test_a_snapshot_is_json() -> None:
    player = ReferencePlayer(COUNTS, BY_HAND)
    player.feed([at(1, "ü", v=[1, {"x": None}])])
    assert json.loads(player.snapshot())["version"] == 1
    player.close()
