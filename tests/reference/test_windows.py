"""Window assignment, and merging of sessions."""

from typing import Any

import pytest

from strandline.model.elements import BEGINNING, END, Duration, Element, Timestamp
from strandline.model.panes import DeadReason
from strandline.model.windows import (
    EVERYTHING,
    Count,
    Touching,
    Window,
    WindowKind,
    cumulating,
    custom,
    everything,
    session,
    sliding,
    tumbling,
)
from strandline.reference.windows import boundary, covers, windows_of


def at(seconds: float, **columns: Any) -> Element:
    return Element(Timestamp(round(seconds * 1000)), "k", columns)


def spans(*bounds: tuple[float, float]) -> tuple[Window, ...]:
    return tuple(Window(Timestamp(round(start * 1000)), Timestamp(round(end * 1000))) for start, end in bounds)


@pytest.mark.parametrize(
    ("kind", "second", "expected"),
    [
        (tumbling("10s"), 10, [(10, 20)]),
        (tumbling("10s"), 9.999, [(0, 10)]),
        (tumbling("10s"), -0.001, [(-10, 0)]),
        (tumbling("10s", offset="23s"), 2, [(-7, 3)]),
        (tumbling("10s", offset="-7s"), 2, [(-7, 3)]),
        (sliding("10s", every="5s"), 7, [(0, 10), (5, 15)]),
        (sliding("10s", every="4s"), 8, [(0, 10), (4, 14), (8, 18)]),
        (sliding("10s", every="4s"), 11, [(4, 14), (8, 18)]),
        (sliding("5s", every="10s"), 4, [(0, 5)]),
        (sliding("5s", every="10s"), 5, []),
        (sliding("10s", every="5s", offset="2s"), 1, [(-8, 2), (-3, 7)]),
        (cumulating("30s", step="10s"), 12, [(0, 20), (0, 30)]),
        (cumulating("30s", step="10s"), 0, [(0, 10), (0, 20), (0, 30)]),
        (cumulating("20s", step="10s", offset="5s"), 3, [(-15, 5)]),
        (session("4s"), 3, [(3, 7)]),
    ],
)
def test_an_element_is_assigned_to_its_windows(
    kind: WindowKind, second: float, expected: list[tuple[float, float]]
) -> None:
    assert windows_of(at(second), kind) == spans(*expected)


def test_everything_falls_into_the_global_window() -> None:
    assert windows_of(at(5), everything()) == (EVERYTHING,)


@pytest.mark.parametrize("gap", [0, -5, None, "soon", True, 1.5])
def test_an_invalid_gap_makes_a_dead_letter(gap: Any) -> None:
    assert windows_of(at(5, gap=gap), session(column="gap")) is DeadReason.BAD_GAP


@pytest.mark.parametrize("gap", [2_000, "2s", Duration(2_000)])
def test_a_gap_may_be_milliseconds_or_a_length(gap: Any) -> None:
    assert windows_of(at(5, gap=gap), session(column="gap")) == spans((5, 7))


@pytest.mark.parametrize(
    ("start", "end"), [("5s", "5s"), ("5s", "4s"), (None, "5s"), ("5s", "later"), ("-inf", "5s"), ("5s", "+inf")]
)
def test_invalid_bounds_make_a_dead_letter(start: Any, end: Any) -> None:
    assert windows_of(at(1, a=start, b=end), custom(start="a", end="b")) is DeadReason.BAD_WINDOW


def test_an_element_may_bring_its_own_bounds() -> None:
    assert windows_of(at(1, a=2_000, b="5s"), custom(start="a", end="b")) == spans((2, 5))


@pytest.mark.parametrize("kind", [tumbling("10s"), sliding("10s", every="5s"), cumulating("30s", step="10s")])
def test_windows_end_where_time_ends(kind: WindowKind) -> None:
    first, last = Element(Timestamp(BEGINNING.ms + 1), "k"), Element(Timestamp(END.ms - 1), "k")
    early, late = windows_of(first, kind), windows_of(last, kind)
    assert isinstance(early, tuple)
    assert isinstance(late, tuple)
    assert early[0].start == BEGINNING
    assert late[-1].end == END
    assert all(window.start < window.end for window in early + late)


def test_a_count_window_is_not_assigned_by_time() -> None:
    with pytest.raises(TypeError, match="by arrival"):
        windows_of(at(1), Count(3))


def test_a_boundary_is_at_or_before_its_instant() -> None:
    assert boundary(Timestamp(10), Duration(10), Duration(0)) == 10
    assert boundary(Timestamp(9), Duration(10), Duration(3)) == 3
    assert boundary(Timestamp(-1), Duration(10), Duration(0)) == -10


def test_sessions_that_overlap_become_one_through_others() -> None:
    a, b, c, d = spans((0, 4), (3, 6), (5, 9), (20, 24))
    (whole,) = spans((0, 9))
    assert covers([d, c, a, b], Touching.MERGE) == {a: whole, b: whole, c: whole, d: d}


def test_a_session_inside_another_is_part_of_it() -> None:
    outer, inner, after = spans((0, 20), (2, 4), (10, 12))
    assert covers([inner, after, outer], Touching.SEPARATE) == {inner: outer, after: outer, outer: outer}


def test_touching_sessions_merge_only_if_configured() -> None:
    a, b = spans((0, 4), (4, 8))
    (whole,) = spans((0, 8))
    assert covers([a, b], Touching.MERGE) == {a: whole, b: whole}
    assert covers([a, b], Touching.SEPARATE) == {a: a, b: b}


def test_no_sessions_merge_into_none() -> None:
    assert covers([], Touching.MERGE) == {}
