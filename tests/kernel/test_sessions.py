"""Merging sessions of all keys at once agrees with the oracle for each key."""

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.kernel.blocks.block import END, START
from strandline.kernel.window.panes import OWNER_END, OWNER_START
from strandline.kernel.window.sessions import COVER_END, COVER_START, cover, find_merges, under_merged_bounds
from strandline.kernel.window.window_rows import CLOSED
from strandline.kernel.window.window_slices import read_windows
from strandline.model.elements import Timestamp
from strandline.model.windows import Touching, Window
from strandline.reference.windows import covers
from tests.kernel.batches import KeyGroup, asking, refused, said

Span = tuple[str | None, int, int]

FAR = 10**9
GAP = 10_000
CORRECTING = asking(
    window=sl.session(ms=GAP),
    trigger=sl.after_watermark(early=sl.after_count(1), late=sl.after_count(1)),
    accumulation=sl.retracting,
    lateness=60_000,
)


def spans(rows: Sequence[Span], **columns: Any) -> pl.DataFrame:
    frame = pl.DataFrame(rows, {"team": pl.String, START: pl.Int64, END: pl.Int64}, orient="row")
    return frame.with_columns(**columns)


def covered(rows: Sequence[Span], touching: Touching = Touching.MERGE) -> dict[Span, tuple[int, int]]:
    found = cover(spans(rows), ["team"], touching).select("team", START, END, COVER_START, COVER_END)
    return {(team, start, end): (first, last) for team, start, end, first, last in found.iter_rows()}


def test_spans_that_overlap_become_one_and_others_stay_as_they_are() -> None:
    found = covered([("red", 0, 10), ("red", 5, 15), ("red", 12, 14), ("red", 30, 40)])
    assert [*found.values()] == [(0, 15), (0, 15), (0, 15), (30, 40)]


@pytest.mark.parametrize(("touching", "one"), [(Touching.MERGE, True), (Touching.SEPARATE, False)])
def test_spans_that_only_touch_merge_if_configured(touching: Touching, one: bool) -> None:
    found = covered([("red", 0, 10), ("red", 10, 20)], touching)
    assert [*found.values()] == ([(0, 20), (0, 20)] if one else [(0, 10), (10, 20)])


def test_spans_of_different_keys_never_merge() -> None:
    found = covered([("red", 0, 10), ("blue", 5, 15), (None, 9, 99), ("red", 9, 12)])
    assert found == {
        ("red", 0, 10): (0, 12),
        ("red", 9, 12): (0, 12),
        ("blue", 5, 15): (5, 15),
        (None, 9, 99): (9, 99),
    }


bounds = st.tuples(st.integers(-20, 20), st.integers(1, 12)).map(lambda each: (each[0], each[0] + each[1]))


@given(st.lists(st.tuples(st.sampled_from(["red", "blue", None]), bounds), max_size=12), st.sampled_from(Touching))
def test_every_key_finds_what_the_oracle_finds(rows: list[tuple[str | None, tuple[int, int]]], how: Touching) -> None:
    found = covered([(team, start, end) for team, (start, end) in rows], how)
    for key in ("red", "blue", None):
        mine = [Window(Timestamp(start), Timestamp(end)) for team, (start, end) in rows if team == key]
        expected = {(each.start.ms, each.end.ms): whole for each, whole in covers(mine, how).items()}
        actual = {(start, end): whole for (team, start, end), whole in found.items() if team == key}
        assert actual == {each: (whole.start.ms, whole.end.ms) for each, whole in expected.items()}


def met(live: Sequence[Span], new: Sequence[Span], *, closed: Sequence[Span] = (), before: int = -FAR) -> Any:
    opened = pl.concat([spans(live, **{CLOSED: pl.lit(False)}), spans(closed, **{CLOSED: pl.lit(True)})])
    found = find_merges(opened, spans(new), ["team"], CORRECTING, Touching.MERGE, before)
    fresh = found.fresh.select(START, COVER_START, COVER_END, "@reason").sort(START)
    return found.live.select(START, COVER_START, COVER_END, "@joined").sort(START).rows(), fresh.rows()


def test_a_new_span_merges_the_sessions_that_it_overlaps() -> None:
    live, fresh = met([("red", 0, 10), ("red", 15, 25), ("red", 90, 99)], [("red", 8, 18)])
    assert live == [(0, 0, 25, True), (15, 0, 25, True), (90, 90, 99, False)]
    assert fresh == [(8, 0, 25, None)]


def test_a_span_is_late_if_its_merged_session_has_expired() -> None:
    gone = 60_000 + 17
    assert met([], [("red", 8, 18)], before=gone)[1] == [(8, 8, 18, "expired")]
    assert met([("red", 10, 19)], [("red", 8, 18)], before=gone)[1] == [(8, 8, 19, None)]


def test_a_span_is_late_if_its_merged_session_is_closed() -> None:
    mark = [("red", 0, 10)]
    assert met([], [("red", 0, 10)], closed=mark)[1] == [(0, 0, 10, "closed")]
    assert met([], [("red", 0, 12)], closed=mark)[1] == [(0, 0, 12, None)]
    assert met([], [("blue", 0, 10)], closed=mark)[1] == [(0, 0, 10, None)]


def test_rows_get_the_bounds_of_their_merged_session() -> None:
    where = spans([("red", 0, 10)]).with_columns(pl.lit(0).alias(COVER_START), pl.lit(25).alias(COVER_END))
    frame = spans([("red", 0, 10), ("blue", 0, 10)], total=pl.lit(5))
    assert under_merged_bounds(frame, where, ["team"]).sort("team").rows() == [("blue", 0, 10, 5), ("red", 0, 25, 5)]


def test_a_session_that_grows_starts_over_and_retracts_its_pane() -> None:
    group = KeyGroup(CORRECTING)
    assert said(group.play(("red", 5, 0)), START, END, "total", "@index") == [("+", 0, GAP, 5, 0)]
    assert said(group.play(("red", 2, 5_000)), START, END, "total", "@index") == [
        ("-", 0, GAP, 5, 0),
        ("+", 0, 5_000 + GAP, 7, 0),
    ]


def test_panes_of_merged_sessions_are_retracted_in_order_of_their_bounds() -> None:
    group = KeyGroup(CORRECTING)
    group.play(("red", 5, 0), ("red", 2, 15_000))
    assert said(group.play(("red", 1, 7_000)), START, END, "total") == [
        ("-", 0, GAP, 5),
        ("-", 15_000, 15_000 + GAP, 2),
        ("+", 0, 15_000 + GAP, 8),
    ]


def test_an_element_inside_a_session_changes_nothing_but_its_contents() -> None:
    group = KeyGroup(CORRECTING)
    group.play(("red", 5, 0), ("red", 2, 8_000))
    assert said(group.play(("red", 1, 3_000)), START, END, "total", "@index") == [
        ("-", 0, 18_000, 7, 0),
        ("+", 0, 18_000, 8, 1),
    ]


def test_pending_retractions_wait_until_the_new_session_fires() -> None:
    definition = asking(
        window=sl.session(ms=GAP),
        trigger=sl.repeatedly(sl.after_count(2)),
        accumulation=sl.retracting,
        lateness=60_000,
    )
    group = KeyGroup(definition)
    group.play(("red", 1, 0), ("red", 2, 0))
    assert said(group.play(("red", 4, 5_000)), START, END, "total") == []
    kept = read_windows(group.held, [int(place.removeprefix("slice:")) for place in group.held if place != "index"])
    assert kept.pending is not None
    assert kept.pending.select(START, END, OWNER_START, OWNER_END).rows() == [(0, GAP, 0, 15_000)]
    assert said(group.play(("red", 8, 5_000)), START, END, "total") == [
        ("-", 0, GAP, 3),
        ("+", 0, 15_000, 15),
    ]


def test_older_and_newer_pending_retractions_are_emitted_in_order_of_their_bounds() -> None:
    trigger = sl.repeatedly(sl.after_count(2))
    definition = asking(window=sl.session(ms=GAP), trigger=trigger, accumulation=sl.retracting, lateness=60_000)
    group = KeyGroup(definition)
    group.play(("red", 1, 20_000), ("red", 1, 20_000))
    group.play(("red", 1, 25_000))
    group.play(("red", 1, 0), ("red", 1, 0))
    batch = group.play(("red", 1, 9_000), ("red", 1, 18_000))
    assert said(batch, START, "total") == [("-", 0, 2), ("-", 20_000, 2), ("+", 0, 7)]


def test_a_late_element_between_an_expired_and_an_open_session_is_accepted() -> None:
    group = KeyGroup(asking(window=sl.session(ms=GAP)))
    group.play(("red", 5, 0), ("red", 2, 30_000), watermark=20_000)
    batch = group.play(("red", 1, 8_000), ("red", 1, 25_000))
    assert refused(batch) == [("red", 1, "expired")]
    assert said(group.play(watermark=39_999), START, END, "total") == [("+", 25_000, 40_000, 3)]
