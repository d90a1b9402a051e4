"""Pre-aggregation is skipped for high-cardinality keys, without changing results."""

from typing import Any

import numpy as np
import polars as pl
import pytest

import strandline as sl
from strandline.kernel.aggregation import skip_preaggregation as module
from strandline.kernel.aggregation.accumulators import combine, identity, merge_rows
from strandline.kernel.aggregation.skip_preaggregation import one_row_per_element
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


def elements_of(teams: Any, score: pl.Series | None = None, *, over: int = 20_000) -> pl.DataFrame:
    """Make one element for each team, in this order."""
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


def is_skipped(teams: Any, definition: WindowedStep | None = None) -> bool:
    definition = definition or asking()
    return one_row_per_element(assign(elements_of(teams), definition.window), KEYS, definition) is not None


HOT = np.where(np.random.default_rng(6).random(MANY) < 0.5, 7, drawn(10**6))


@pytest.mark.parametrize(
    ("teams", "skipped"),
    [
        pytest.param(drawn(10**6), True, id="many teams in random order"),
        pytest.param(drawn(30_000), True, id="as many teams as a window has elements"),
        pytest.param(drawn(5_000), False, id="a window has several elements of each"),
        pytest.param(drawn(10), False, id="few teams"),
        pytest.param(HOT, False, id="one hot team with half of the elements"),
        pytest.param(np.arange(MANY) % 9_000, False, id="nine thousand teams in turn"),
        pytest.param(np.arange(MANY) // 3, False, id="every team three times in a row"),
        pytest.param(np.arange(MANY), True, id="no team repeats"),
        pytest.param(np.arange(2_000), False, id="too few elements to sample"),
    ],
)
def test_preaggregation_is_skipped_when_keys_rarely_repeat_in_a_window(teams: Any, skipped: bool) -> None:
    assert is_skipped(teams) is skipped


@pytest.mark.parametrize(
    "aggregate",
    [sl.count_distinct("score"), sl.collect("score"), sl.last("score"), sl.variance("score"), sl.top_k("score", 2)],
    ids=str,
)
def test_aggregates_without_a_per_row_form_are_preaggregated(aggregate: Aggregate) -> None:
    assert not is_skipped(np.arange(MANY), asking(aggregates=(("n", sl.count()), ("other", aggregate))))


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
def test_merged_partial_rows_equal_preaggregated_rows(
    kind: str, how: PaneTimestamp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_rarely_repeats", lambda *_: True)
    holes = pl.select(pl.when(pl.int_range(MANY) % 7 > 0).then(KINDS[kind])).to_series()
    definition = asking(
        aggregates=ALL, pane_timestamp=how, trigger=sl.after_watermark(early=sl.after_event_time(seconds=3))
    )
    placed = assign(elements_of(drawn(30_000), holes), definition.window)
    only = placed["team"] % 3 > 0
    found, expected = one_row_per_element(placed, KEYS, definition, only), combine(placed, KEYS, definition, only)
    assert found is not None
    assert found.repeats
    assert found.rows.schema == expected.rows.schema
    assert found.rows.height == only.sum() > expected.rows.height
    merged = merge_rows([found.rows], KEYS, definition).select(expected.rows.columns)
    assert merged.sort(identity(KEYS)).equals(expected.rows.sort(identity(KEYS)))


@pytest.mark.parametrize(
    "score",
    [
        pytest.param(pl.Series([1 << 61] * MANY), id="sums that may overflow"),
        pytest.param(pl.Series(range(MANY)).cast(pl.Decimal(12, 2)), id="decimals, whose sums have more digits"),
    ],
)
def test_decimal_sums_and_sums_that_may_overflow_are_preaggregated(score: pl.Series) -> None:
    definition = asking()
    assert one_row_per_element(assign(elements_of(np.arange(MANY), score), definition.window), KEYS, definition) is None


def test_a_block_carries_the_fact_that_a_window_may_have_several_rows() -> None:
    for teams, repeats in ((drawn(10**6), True), (drawn(10), False)):
        (block,) = prepare(elements_of(teams), KEYS, asking(), 1, -1).blocks.values()
        (found,) = gather([block], asking())
        assert found.repeats is repeats
        assert (found.rows.height == MANY) is repeats


def test_each_window_emits_one_pane_if_only_one_task_sent_partial_rows() -> None:
    events, definition = elements_of(drawn(30_000)), asking()
    (block,) = prepare(events, KEYS, definition, 1, -1).blocks.values()
    assert block.frames["parts"].height == MANY
    spec = StepSpec(tuple(KEYS), definition, sl.bounded(seconds=0), ("0",))
    panes = step({}, [block], [Control(0, (), drain=True)], spec).rows
    assert panes is not None
    found = panes.select("team", START, "total", "plays").sort("team", START)
    windows = events.group_by("team", (pl.col(AT) // 10_000 * 10_000).alias(START))
    totals = windows.agg(pl.col("score").sum().alias("total"), pl.len().cast(pl.Int64).alias("plays"))
    assert found.equals(totals.sort("team", START))
