"""Sums near 64 bits and 38 digits: exact if the total fits, whatever their parts; else null and counted."""

from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.kernel.aggregation import overflow
from strandline.kernel.aggregation.overflow import LIMIT, at_risk
from strandline.kernel.blocks.block import AT
from strandline.kernel.output import Counts, to_block
from strandline.kernel.step import StepSpec
from strandline.kernel.step import step as run_step
from strandline.kernel.watermarks import Control, Seen
from strandline.kernel.window.prepare import prepare
from strandline.model.elements import Element, Timestamp
from strandline.model.panes import Accumulation, Lateness
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import BY_HAND
from strandline.model.windows import WindowKind
from strandline.reference.player import ReferencePlayer
from tests.kernel.batches import asking, elements
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
        ([[LIMIT // 2, LIMIT // 2]], LIMIT),
        ([[LIMIT // 2], [LIMIT // 2]], LIMIT),
        ([[LIMIT]], LIMIT),
        ([[2**63 - 1]], 2**63 - 1),
        ([[-(2**63)]], -(2**63)),
        ([[-(2**62)], [-(2**62)]], -(2**63)),
        ([[-(2**62)], [-(2**62)], [-1]], None),
        ([[2**63 - 1], [1]], None),
        ([[2**63 - 1], [2**63 - 1]], None),
        ([[-(2**63)], [-(2**63)]], None),
        ([[2**63 - 1] * 4, [-(2**63)] * 3, [-(2**62)] * 2], -4),
        ([[2**63 - 1] * 4, [-(2**63)] * 4], -4),
        ([[LIMIT - 1, -5], [-LIMIT + 4]], -2),
    ],
    ids=str,
)
def test_a_sum_of_integers_is_exact_if_it_fits_and_else_null(
    kind: WindowKind, batches: list[list[int]], value: int | None
) -> None:
    assert set(emitted_totals(kind, batches, KernelPlayer)) == {value}
    assert set(emitted_totals(kind, batches, ReferencePlayer)) == {value}


def test_only_large_integers_are_at_risk_of_overflow() -> None:
    assert not at_risk(pl.Series(range(-1_000, 1_000_000)))
    assert at_risk(pl.Series([LIMIT // 2, 1]))
    assert not at_risk(pl.Series([1e300]))
    assert not at_risk(pl.Series(["1.5"]).cast(pl.Decimal(38, 2)))
    assert at_risk(pl.Series([Decimal(10**37)] * 10, dtype=pl.Decimal(38, 0)))
    assert not at_risk(pl.Series([], dtype=pl.Int64))


@pytest.mark.parametrize("value", [2.0**62, -(2.0**62)])
def test_a_sum_of_doubles_may_have_the_value_that_once_marked_an_overflow(value: float) -> None:
    assert emitted_totals(sl.tumbling("1m"), [[value]], KernelPlayer) == [value]  # type: ignore[list-item]


UNIT = Decimal(1).scaleb(-18)
MOST, LEAST = (Decimal(sign + "9" * 20 + "." + "9" * 18) for sign in ("", "-"))


@pytest.mark.parametrize("kind", WINDOWS, ids=str)
@pytest.mark.parametrize(
    ("batches", "value"),
    [
        ([[MOST]], MOST),
        ([[MOST, MOST]], None),
        ([[MOST], [MOST]], None),
        ([[MOST], [MOST], [LEAST]], MOST),
        ([[MOST, MOST, LEAST, LEAST, UNIT]], UNIT),
        ([[LEAST, LEAST], [MOST, MOST], [-UNIT]], -UNIT),
        ([[MOST] * 50, [LEAST] * 50], Decimal(0)),
        ([[MOST, UNIT]], None),
        ([[LEAST, -UNIT]], None),
    ],
)
def test_a_sum_of_decimals_is_exact_if_it_has_38_digits_and_else_null(
    kind: WindowKind, batches: list[list[Any]], value: Decimal | None
) -> None:
    assert set(emitted_totals(kind, batches, KernelPlayer)) == {value}
    assert set(emitted_totals(kind, batches, ReferencePlayer)) == {value}


def test_sums_that_overflow_are_counted_once_for_each_new_pane() -> None:
    step = asking(seconds=10, lateness=60_000, accumulation=Accumulation.RETRACTING)
    spec = StepSpec(("team",), step, sl.bounded(minutes=0))
    held: dict[str, bytes] = {}
    most = 2**63 - 1
    batches: list[list[tuple[str | None, int, int]]] = [
        [("red", most, 1_000), ("blue", 1, 1_000)], [("red", most, 2_000)], [("red", 5, 30_000)], [("red", 1, 3_000)],
    ]  # fmt: skip
    counted = []
    for number, scores in enumerate(batches):
        frame = elements(scores, first=10 * number)
        blocks = [*prepare(frame, ["team"], step, 1, None).blocks.values()]
        seen = [Seen("0", frame.height, frame[AT].max())]  # type: ignore[arg-type]
        stepped = run_step(held, blocks, [Control(0, tuple(seen))], spec)
        held = {place: data for place, data in {**held, **stepped.writes}.items() if data is not None}
        counted.append((stepped.overflow, to_block(stepped, None, Counts()).facts["counts"]["overflow"]))
    # The late element makes a pane again, and its retraction of the null pane is not counted.
    assert counted == [(0, 0), (0, 0), (1, 1), (1, 1)]


def test_a_sum_that_an_older_release_marked_as_overflowed_stays_null() -> None:
    frame = pl.DataFrame({"k": ["a", "a", "b"], "@total": [LIMIT, 5, 7]})
    made = overflow.sums(overflow.units(pl.col("@total")), "@total", pl.Int64(), stored=True)
    merged = overflow.without_empty_carries(frame.group_by("k", maintain_order=True).agg(made), ["@total"])
    value = overflow.value("@total", merged.schema["@total"], merged.columns)
    assert merged.select("k", value).rows() == [("a", None), ("b", 7)]
