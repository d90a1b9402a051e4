"""Elements that hardly ever share a window stay rows by themselves, and become what they would have been combined."""

from typing import Any

import numpy as np
import polars as pl
import pytest

import strandline as sl
from strandline.kernel.aggregation import skip_preaggregation as module
from strandline.kernel.aggregation.accumulators import combine, identity, merge_rows
from strandline.kernel.aggregation.skip_preaggregation import alone
from strandline.kernel.blocks.block import AT, OFFSET, PARTITION, START
from strandline.kernel.step import StepSpec, step
from strandline.kernel.watermarks import Control
from strandline.kernel.window.assign import assign
from strandline.kernel.window.prepare import gather, prepare
from strandline.model.aggregates import Aggregate
from strandline.model.panes import PaneTimestamp
from strandline.model.steps import WindowedStep
from tests.kernel.batches import asking

MANY = 40_000
KEYS = ["team"]


def came(teams: Any, score: pl.Series | None = None, *, over: int = 20_000) -> pl.DataFrame:
    """Elements of these teams, one after the other."""
    many = len(teams)
    return pl.DataFrame(
        {
            "team": pl.Series(teams, dtype=pl.Int64),
            "score": pl.Series(np.arange(many) % 100) if score is None else score,
            AT: pl.Series(np.arange(many) * over // many, dtype=pl.Int64),
            PARTITION: pl.Series(["0"] * many, dtype=pl.String),
            OFFSET: pl.Series(range(many), dtype=pl.Int64),
        }
    )


def drawn(teams: int) -> Any:
    return np.random.default_rng(5).integers(0, teams, MANY)


def is_alone(teams: Any, ask: WindowedStep | None = None) -> bool:
    asked = ask or asking()
    return alone(assign(came(teams), asked.window), KEYS, asked) is not None


HOT = np.where(np.random.default_rng(6).random(MANY) < 0.5, 7, drawn(10**6))


@pytest.mark.parametrize(
    ("teams", "so"),
    [
        pytest.param(drawn(10**6), True, id="many teams in any order"),
        pytest.param(drawn(30_000), True, id="as many teams as a window has elements"),
        pytest.param(drawn(5_000), False, id="a window has several elements of each"),
        pytest.param(drawn(10), False, id="few teams"),
        pytest.param(HOT, False, id="half of all are of one team"),
        pytest.param(np.arange(MANY) % 9_000, False, id="nine thousand teams that take turns"),
        pytest.param(np.arange(MANY) // 3, False, id="every team three times, one after the other"),
        pytest.param(np.arange(MANY), True, id="nobody comes twice"),
        pytest.param(np.arange(2_000), False, id="too few to look"),
    ],
)
def test_whether_they_are_combined_goes_by_how_often_they_share_a_window(teams: Any, so: bool) -> None:
    assert is_alone(teams) is so


@pytest.mark.parametrize(
    "asked",
    [sl.count_distinct("score"), sl.collect("score"), sl.last("score"), sl.variance("score"), sl.top_k("score", 2)],
    ids=str,
)
def test_what_cannot_be_told_of_one_element_is_combined(asked: Aggregate) -> None:
    assert not is_alone(np.arange(MANY), asking(aggregates=(("n", sl.count()), ("asked", asked))))


KINDS: dict[str, pl.Series] = {
    "small integers": pl.Series(np.arange(MANY) % 100, dtype=pl.Int8),
    "integers": pl.Series(np.arange(MANY) - 20_000),
    "unsigned": pl.Series(np.arange(MANY), dtype=pl.UInt32),
    "fractions": pl.Series(np.arange(MANY) / 8),
    "short fractions": pl.Series(np.arange(MANY) / 8, dtype=pl.Float32),
}
ALL: tuple[tuple[str, Aggregate], ...] = (
    ("n", sl.count()), ("given", sl.count("score")), ("total", sl.sum("score")), ("least", sl.min("score")),
    ("most", sl.max("score")), ("average", sl.mean("score")),
)  # fmt: skip


@pytest.mark.parametrize("how", PaneTimestamp)
@pytest.mark.parametrize("kind", KINDS)
def test_merged_they_are_what_they_would_have_been_combined(
    kind: str, how: PaneTimestamp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_seldom_meet", lambda *_: True)
    holes = pl.select(pl.when(pl.int_range(MANY) % 7 > 0).then(KINDS[kind])).to_series()
    ask = asking(aggregates=ALL, pane_timestamp=how, trigger=sl.after_watermark(early=sl.after_event_time(seconds=3)))
    placed = assign(came(drawn(30_000), holes), ask.window)
    only = placed["team"] % 3 > 0
    found, meant = alone(placed, KEYS, ask, only), combine(placed, KEYS, ask, only)
    assert found is not None
    assert found.repeats
    assert found.rows.schema == meant.rows.schema
    assert found.rows.height == only.sum() > meant.rows.height
    merged = merge_rows([found.rows], KEYS, ask).select(meant.rows.columns)
    assert merged.sort(identity(KEYS)).equals(meant.rows.sort(identity(KEYS)))


@pytest.mark.parametrize(
    "score",
    [
        pytest.param(pl.Series([1 << 61] * MANY), id="sums that may leave their range"),
        pytest.param(pl.Series(range(MANY)).cast(pl.Decimal(12, 2)), id="decimals, whose sums have more digits"),
    ],
)
def test_sums_that_need_care_are_combined(score: pl.Series) -> None:
    ask = asking()
    assert alone(assign(came(np.arange(MANY), score), ask.window), KEYS, ask) is None


def test_a_block_says_that_a_window_may_have_several_parts() -> None:
    for teams, repeats in ((drawn(10**6), True), (drawn(10), False)):
        (block,) = prepare(came(teams), KEYS, asking(), 1, -1).blocks.values()
        (found,) = gather([block], asking())
        assert found.repeats is repeats
        assert (found.rows.height == MANY) is repeats


def test_each_window_speaks_once_also_where_only_one_task_had_something_for_it() -> None:
    events, ask = came(drawn(30_000)), asking()
    (block,) = prepare(events, KEYS, ask, 1, -1).blocks.values()
    assert block.frames["parts"].height == MANY
    asked = StepSpec(tuple(KEYS), ask, sl.bounded(seconds=0), ("0",))
    panes = step({}, [block], [Control(0, (), drain=True)], asked).rows
    assert panes is not None
    found = panes.select("team", START, "total", "plays").sort("team", START)
    meant = events.group_by("team", (pl.col(AT) // 10_000 * 10_000).alias(START))
    totals = meant.agg(pl.col("score").sum().alias("total"), pl.len().cast(pl.Int64).alias("plays"))
    assert found.equals(totals.sort("team", START))
