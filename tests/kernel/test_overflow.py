"""Sums at the edge of 64 bits: told as long as they are right, null when they would not be."""

import polars as pl
import pytest

import strandline as sl
from strandline.kernel.aggregation.overflow import LIMIT, at_risk
from strandline.kernel.player import KernelPlayer
from strandline.model.elements import Element, Timestamp
from strandline.model.panes import Accumulation, Lateness
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import BY_HAND
from strandline.model.windows import WindowKind
from strandline.reference.player import ReferencePlayer

WINDOWS = [sl.tumbling("1m"), sl.sliding("1m", every="10s"), sl.session("1m")]


def told(
    kind: WindowKind, batches: list[list[int]], player: type[KernelPlayer] | type[ReferencePlayer]
) -> list[object]:
    step = WindowedStep((("total", sl.sum("v")),), kind, accumulation=Accumulation.ACCUMULATING, lateness=Lateness())
    playing = player(step, BY_HAND, partitions=("",))
    for number, values in enumerate(batches):
        elements = [
            Element(Timestamp(1_000 + at), "k", {"v": value}, "", 100 * number + at) for at, value in enumerate(values)
        ]
        playing.feed(elements)
    return [pane.values["total"] for pane in playing.drain().panes]


@pytest.mark.parametrize("kind", WINDOWS, ids=str)
@pytest.mark.parametrize(
    ("batches", "value"),
    [
        ([[LIMIT - 1]], LIMIT - 1),
        ([[1 - LIMIT]], 1 - LIMIT),
        ([[LIMIT // 2, LIMIT // 2 - 1]], LIMIT - 1),
        ([[LIMIT // 2], [LIMIT // 2 - 1]], LIMIT - 1),
        ([[LIMIT // 2, LIMIT // 2]], None),
        ([[LIMIT // 2], [LIMIT // 2]], None),
        ([[2**63 - 1], [2**63 - 1]], None),
        ([[-(2**63)], [-(2**63)]], None),
        ([[LIMIT // 2, LIMIT // 2], [1], [2]], None),
        ([[LIMIT - 1, -5], [-LIMIT + 4]], -2),
    ],
    ids=str,
)
def test_a_sum_is_told_while_it_is_right_and_null_once_it_is_not(
    kind: WindowKind, batches: list[list[int]], value: int | None
) -> None:
    assert set(told(kind, batches, KernelPlayer)) == {value}
    assert set(told(kind, batches, ReferencePlayer)) == {value}


def test_a_frame_of_ordinary_numbers_is_at_no_risk() -> None:
    assert not at_risk(pl.Series(range(-1_000, 1_000_000)))
    assert at_risk(pl.Series([LIMIT // 2, 1]))
    assert not at_risk(pl.Series([1e300]))
    assert not at_risk(pl.Series([], dtype=pl.Int64))
