"""A snapshot is plain JSON with a version, and refuses other values by type."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from strandline.errors import BrokenBlock, StateError
from strandline.model.aggregates import Count, UserAggregate
from strandline.model.elements import Element, Timestamp
from strandline.model.panes import Timing
from strandline.model.steps import WindowedStep
from strandline.model.triggers import after_count, repeatedly
from strandline.model.watermarks import BY_HAND
from strandline.model.windows import EVERYTHING
from strandline.reference import snapshots
from strandline.reference.player import ReferencePlayer


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        1.5,
        float("inf"),
        "ü",
        [1, [2]],
        (1, (2,)),
        {"a": {1: (2,)}, None: b"\x00\xff"},
        datetime(2024, 5, 1, 12, tzinfo=UTC),
        date(2024, 5, 1),
        Decimal("1.10"),
        Timing.LATE,
        EVERYTHING,
        Element(Timestamp(5), ["composite", 1], {"v": 1}, "p0", 3),
    ],
    ids=repr,
)
def test_a_value_is_restored(value: object) -> None:
    text = json.dumps(snapshots.to_json(value))
    assert snapshots.from_json(json.loads(text)) == value


def test_a_value_that_is_not_plain_is_refused_by_its_type() -> None:
    with pytest.raises(StateError, match="a set cannot be kept in a snapshot"):
        snapshots.to_json({1, 2})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("half a", "this is not a snapshot"),
        ("[]", "this is not a snapshot"),
        ('{"kept": {}}', "this is not a snapshot"),
        ('{"version": 99, "kept": {}}', "a snapshot of version 99"),
        ('{"version": 1, "kept": {"os.system": ["rm"]}}', "unknown kind 'os.system'"),
    ],
)
def test_an_invalid_snapshot_is_refused(text: str, message: str) -> None:
    with pytest.raises(BrokenBlock, match=message):
        snapshots.read(text)


def test_a_player_restores_all_state() -> None:
    ask = WindowedStep((("n", Count()),), trigger=repeatedly(after_count(2)))
    player = ReferencePlayer(ask, BY_HAND)
    player.feed([Element(Timestamp(5), None, {"v": b"x"}), Element(Timestamp(6), 1.5), Element(Timestamp(7), True)])
    player.move_watermark(Timestamp(9))
    player.move_clock(Timestamp(11))
    again = player.restart()
    assert json.loads(again.snapshot()) == json.loads(player.snapshot())
    assert (again.rows, again.watermark, again.tally) == (3, Timestamp(9), player.tally)


def test_a_users_accumulator_need_not_be_plain_only_its_result() -> None:
    """Windows keep elements, so an accumulator of any kind survives a restart."""
    letters = UserAggregate("v", frozenset, lambda kept, text: kept | {text}, sorted)
    player = ReferencePlayer(WindowedStep((("letters", letters),)), BY_HAND)
    player.feed([Element(Timestamp(1), "k", {"v": "b"})])
    player = player.restart()
    player.feed([Element(Timestamp(2), "k", {"v": "a"})])
    assert [pane.values for pane in player.drain().panes] == [{"letters": ["a", "b"]}]
