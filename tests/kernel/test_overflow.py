"""Integer sums near 64 bits: exact while they fit, null after an overflow."""

import polars as pl
import pytest

import strandline as sl
from strandline.kernel.aggregation.overflow import LIMIT, at_risk
from strandline.model.elements import Element, Timestamp
from strandline.model.panes import Accumulation, Lateness
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import BY_HAND
from strandline.model.windows import WindowKind
from strandline.reference.player import ReferencePlayer
from tests.kernel.players import KernelPlayer

WINDOWS = [sl.tumbling("1m"), sl.sliding("1m", every="10s"), sl.session("1m")]


def emitted_totals(
    kind: WindowKind, batches: list[list[int]], player: type[KernelPlayer] | type[ReferencePlayer]
) -> list[object]:
    step = WindowedStep((("total", sl.sum("v")),), kind, accumulation=Accumulation.ACCUMULATING, lateness=Lateness())
    run = player(step, BY_HAND, partitions=("",))
    for number, values in enumerate(batches):
        elements = [
            Element(Timestamp(1_000 + at), "k", {"v": value}, "", 100 * number + at) for at, value in enumerate(values)
        ]
        run.feed(elements)
    return [pane.values["total"] for pane in run.drain().panes]


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
def test_a_sum_is_exact_until_it_overflows_and_null_afterwards(
    kind: WindowKind, batches: list[list[int]], value: int | None
) -> None:
    assert set(emitted_totals(kind, batches, KernelPlayer)) == {value}
    assert set(emitted_totals(kind, batches, ReferencePlayer)) == {value}


def test_only_large_integers_are_at_risk_of_overflow() -> None:
    assert not at_risk(pl.Series(range(-1_000, 1_000_000)))
    assert at_risk(pl.Series([LIMIT // 2, 1]))
    assert not at_risk(pl.Series([1e300]))
    assert not at_risk(pl.Series([], dtype=pl.Int64))
