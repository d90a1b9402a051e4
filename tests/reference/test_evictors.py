"""The elements that a window keeps at a firing."""

import pytest

from strandline.model.elements import Element, Timestamp
from strandline.model.evictors import Evictor, Moment, keep_delta, keep_last, keep_within
from strandline.reference.evictors import kept
from strandline.reference.state import Arrived

CONTENTS = tuple(
    Arrived(number, Element(Timestamp(second * 1000), "k", {"v": value}))
    for number, (second, value) in enumerate([(5, 1), (9, 4), (7, None), (8, 6)])
)


@pytest.mark.parametrize(
    ("evictor", "numbers"),
    [
        (keep_last(2), [2, 3]),
        (keep_last(9), [0, 1, 2, 3]),
        (keep_last(0), []),
        (keep_within("2s"), [1, 3]),
        (keep_within("2001ms"), [1, 2, 3]),
        (keep_delta("last.v - v", bound=3), [1, 2, 3]),
        (keep_delta("last.v - v", bound=0), [2]),
    ],
)
def test_each_evictor_keeps_its_elements(evictor: Evictor, numbers: list[int]) -> None:
    assert [one.number for one in kept(evictor, Moment.BEFORE, CONTENTS)] == numbers


def test_an_evictor_runs_only_at_its_moment() -> None:
    assert kept(keep_last(1, when="after"), Moment.BEFORE, CONTENTS) == CONTENTS
    assert kept(keep_last(1, when="after"), Moment.AFTER, CONTENTS) == CONTENTS[-1:]


def test_nothing_is_evicted_from_an_empty_window_or_without_an_evictor() -> None:
    assert kept(keep_delta("last.v - v", bound=3), Moment.BEFORE, ()) == ()
    assert kept(None, Moment.BEFORE, CONTENTS) == CONTENTS
