"""Comparison of rows: which values are equal, which orders are allowed, and how a difference reads."""

from typing import Any

import pytest

from strandline.model.elements import Element, Timestamp
from strandline.model.panes import DeadLetter, Late, LateReason, Pane, Timing
from strandline.model.windows import EVERYTHING, Window
from strandline.plan.stories.expectations import dead_fields, late_fields, panes_differ, rows_differ, shown, text_of
from strandline.plan.stories.story_steps import Row

MINUTE = Window(Timestamp(0), Timestamp(60_000))


def pane(key: Any = "k", window: Window = MINUTE, index: int = 0, **values: Any) -> Pane:
    return Pane(key, window, values, Timing.EARLY, index, -1, index == 0, False, window.max_timestamp)


def differ(expected: list[dict[str, Any]], *panes: Pane, some: bool = False) -> Any:
    return panes_differ([Row(fields) for fields in expected], panes, {"all"}, some=some)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, 1.0),
        (0.3, 0.1 + 0.2),
        (float("nan"), float("nan")),
        ([1, [2.0]], [1, [2]]),
        ({"a": 0.3}, {"a": 0.1 + 0.2}),
        (None, None),
    ],
)
def test_values_that_are_the_same(expected: Any, got: Any) -> None:
    assert differ([{"v": expected}], pane(v=got)) is None


@pytest.mark.parametrize(
    ("expected", "got"),
    [(1, True), (True, 1), (0, None), (1, 1.001), ([1, 2], [2, 1]), ([1], [1, 1]), ({"a": 1}, {}), ("1", 1)],
)
def test_values_that_are_not(expected: Any, got: Any) -> None:
    assert differ([{"v": expected}], pane(v=got)) is not None


def test_fields_that_are_not_named_are_not_compared() -> None:
    assert differ([{}], pane(v=5)) is None
    assert differ([{"v": 5, "first": True, "window": MINUTE}], pane(v=5)) is None


def test_collected_values_are_a_multiset() -> None:
    assert differ([{"all": [2, 1, 2]}], pane(all=[1, 2, 2])) is None
    assert differ([{"all": [1, 1, 2]}], pane(all=[1, 2, 2])) is not None
    assert differ([{"all": [2, 1]}], pane(all=[1, 2, 2])) is not None


def test_order_counts_only_within_one_key_and_window() -> None:
    a0, a1, b = pane("a", v=1), pane("a", index=1, v=2), pane("b", v=3)
    assert differ([{"v": 3}, {"v": 1}, {"v": 2}], a0, a1, b) is None
    assert differ([{"v": 1}, {"v": 3}, {"v": 2}], a0, a1, b) is None
    wrong = differ([{"v": 2}, {"v": 1}, {"v": 3}], a0, a1, b)
    assert wrong.remarks == ("all rows match, but in another order within one key and window",)


def test_rows_with_few_fields_are_matched_where_possible() -> None:
    """The first row matches both panes; taking the first pane would leave none for the second row."""
    assert differ([{"v": 1}, {"key": "a"}], pane("a", v=1), pane("b", v=1)) is None
    many = [pane(str(n), v=1) for n in range(40)]
    assert differ([*({"v": 1} for _ in range(39)), {"key": "0"}], *many) is None


def test_very_many_rows_are_compared_too() -> None:
    many = [pane(n, v=n) for n in range(1_010)]
    assert differ([{"key": n, "v": n} for n in reversed(range(1_010))], *many) is None
    assert differ([{"key": n, "v": n + (n == 70)} for n in range(100)], *many[:100]) is not None


def test_a_long_search_gives_up() -> None:
    """Thirty keys with two equal panes each, and one key with its panes in the wrong order."""
    panes = [pane(key, index=n, v=1) for key in range(30) for n in range(2)]
    panes += [pane("odd", v=2), pane("odd", index=1, v=3)]
    rows: list[dict[str, Any]] = [{"v": 1} for _ in range(60)]
    assert differ([*rows, {"v": 2}, {"v": 3}], *panes) is None
    assert differ([*rows, {"v": 3}, {"v": 2}], *panes) is not None


def test_some_rows_are_enough_with_expect_some() -> None:
    panes = [pane("a", index=n, v=n) for n in range(4)]
    assert differ([{"v": 1}, {"v": 3}], *panes, some=True) is None
    assert differ([{"v": 3}, {"v": 1}], *panes, some=True) is not None
    missing = differ([{"v": 9}], *panes, some=True)
    assert missing.summary == "expected 1 pane among others, got 4 panes"
    assert not any(row.startswith("+") for row in missing.got)


def test_a_difference_compares_the_most_similar_rows() -> None:
    found = differ([{"key": "a", "v": 1}, {"key": "b", "v": 2}], pane("a", v=1), pane("b", v=7, index=3))
    assert found.summary == "expected 2 panes, got 2 panes"
    assert found.expected == ("  {key: a, v: 1}", "- {key: b, v: 2}")
    assert found.got == (
        "  {key: a, window: [0s, 1m], v: 1, timing: early, index: 0}",
        "+ {key: b, window: [0s, 1m], v: 7, timing: early, index: 3}",
    )
    assert found.remarks == ("{key: b, v: 2}: v is 7, expected 2",)


def test_missing_and_extra_rows_are_marked() -> None:
    assert differ([{"v": 1}]).expected == ("- {v: 1}",)
    assert differ([], pane(v=1)).got[0].startswith("+ ")
    assert differ([], pane(v=1)).summary == "expected no panes, got 1 pane"


def test_late_rows_and_dead_letters_come_in_any_order() -> None:
    element = Element(Timestamp(5_000), "k", {"v": 1}, "p0")
    late = [
        Late(element, LateReason.EXPIRED, MINUTE, Timestamp(7), partial=True),
        Late(element, LateReason.CLOSED, None, Timestamp(7)),
    ]
    got = [late_fields(each) for each in late]
    rows = [Row({"reason": "closed", "window": None}), Row({"v": 1, "at": Timestamp(5_000), "partial": True})]
    assert rows_differ("late row", rows, got) is None
    wrong = rows_differ("late row", [Row({"reason": "closed"}), Row({"reason": "closed", "side": 1})], got)
    assert wrong is not None
    assert "side is missing, expected 1" in "".join(wrong.remarks)
    dead = [dead_fields(DeadLetter("bad_gap", {"key": "k", "v": 1}))]
    assert rows_differ("dead letter", [Row({"reason": "bad_gap", "v": 1})], dead) is None
    assert rows_differ("dead letter", [], dead) is not None


def test_values_are_shown_as_a_story_writes_them() -> None:
    assert text_of(None) == "null"
    assert text_of(True) == "true"
    assert text_of("on_time") == "on_time"
    assert text_of("two words") == "'two words'"
    assert text_of("5") == "'5'"
    assert text_of(EVERYTHING) == "global"
    assert text_of(Timestamp(1_500)) == "1s500ms"
    assert shown({"a": [1, {"b": None}]}) == "{a: [1, {b: null}]}"
