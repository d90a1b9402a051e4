"""First, last, arg_min and arg_max: picked by rank, and restored from state of an older layout."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest

import strandline as sl
from strandline.kernel.aggregation import first_last
from strandline.kernel.aggregation.accumulators import picks_of, sets_of
from strandline.kernel.aggregation.aggregates import BY, POSITION, VALUE
from strandline.kernel.aggregation.first_last import Pick, ranked
from strandline.kernel.blocks.block import AT, END, OFFSET, PARTITION, START, Block, pack, unpack
from strandline.kernel.operator import Fit
from strandline.kernel.state.slice_store import FORM, INDEX, read_index
from strandline.kernel.state_export import export
from strandline.kernel.window.export import fitted
from strandline.kernel.window.state_migrations import in_rows
from strandline.model.steps import WindowedStep
from tests.kernel.batches import KeyGroup, asking, said

WINDOWS = "windows"

PICKS = (
    Pick("first", "score"), Pick("last", "score", last=True), Pick("least", "score", "weight"),
    Pick("most", "score", "weight", most=True), Pick("other", "word", last=True),
)  # fmt: skip
BEST = (
    ("oldest", sl.first("score")), ("newest", sl.last("score")), ("best", sl.argmax("score", by="score")),
    ("total", sl.sum("score")), ("kinds", sl.count_distinct("score")), ("teams", sl.count_distinct("team")),
)  # fmt: skip


def scattered(rows: int) -> pl.DataFrame:
    """Make elements of a few keys, with equal times, equal weights and missing values."""
    lots = np.random.default_rng(rows)
    return pl.DataFrame({
        "key": lots.integers(0, 7, rows), "score": lots.integers(0, 50, rows), "weight": lots.integers(0, 4, rows),
        "word": lots.choice(["a", "b", "c"], rows), AT: lots.integers(0, 9, rows),
        PARTITION: lots.choice(["one", "two", "ten"], rows), OFFSET: np.arange(rows),
    }).with_columns(
        pl.when(pl.col("score") > 5).then("score"), pl.when(pl.col("weight") > 0).then("weight"),
        pl.when(pl.col("word") != "c").then("word"),
    )  # fmt: skip


def one_by_one(rows: pl.DataFrame, pick: Pick) -> dict[int, Any]:
    """Compute the same by sorting the elements of each key."""
    found = {}
    order, down = [*([pick.by] if pick.by else []), *POSITION], [*([pick.most] if pick.by else []), *[pick.last] * 3]
    for (key,), group in rows.group_by("key"):
        left = group.drop_nulls([pick.column, *([pick.by] if pick.by else [])]).sort(order, descending=down)
        found[int(key)] = left[pick.column][0] if left.height else None
    return found


@pytest.mark.parametrize("large", [False, True], ids=["positions as one number", "positions too far apart"])
@pytest.mark.parametrize("rows", [1, 2, 30, 2_000])
def test_every_pick_is_found_for_each_key(rows: int, *, large: bool) -> None:
    frame = scattered(rows)
    if large:
        frame = frame.with_columns(pl.col(OFFSET) * 2**40, pl.col(AT) * 2**30)
    ranks = ranked(frame, PICKS, elements=True)
    once = ranks.fetched(ranks.frame.group_by("key").agg(*ranks.made))
    for pick in PICKS:
        assert dict(once.select("key", pick.kept).iter_rows()) == one_by_one(frame, pick)
    # Two halves that are merged give the same.
    halves = []
    for half in (frame[: rows // 2], frame[rows // 2 :]):
        ranks = ranked(half, PICKS, elements=True)
        halves.append(ranks.fetched(ranks.frame.group_by("key").agg(*ranks.made)))
    both = pl.concat(halves, how="vertical_relaxed")
    again = ranked(both, PICKS)
    twice = again.fetched(again.frame.group_by("key").agg(*again.made))
    assert twice.select(once.columns).sort("key").rows() == once.sort("key").rows()


@pytest.mark.parametrize("offset", [0, 2**62], ids=["as one number", "by three"])
def test_among_rows_of_one_position_the_first_arrival_is_picked(offset: int) -> None:
    many = 1_000
    frame = pl.DataFrame({
        "key": [0] * many, "score": range(many), "weight": [1] * many, "word": ["a"] * many, AT: [5] * many,
        PARTITION: ["one"] * many, OFFSET: [offset] * many,
    }).vstack(pl.DataFrame({
        "key": [1], "score": [0], "weight": [1], "word": ["a"], AT: [0], PARTITION: ["one"], OFFSET: [0],
    }))  # fmt: skip
    ranks = ranked(frame, PICKS, elements=True)
    found = ranks.fetched(ranks.frame.group_by("key").agg(*ranks.made)).filter(pl.col("key") == 0)
    assert found.select("@first", "@last", "@least", "@most").row(0) == (0, 0, 0, 0)


def test_picks_with_equal_order_rank_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    order = first_last._order

    def counting(*args: Any) -> Any:
        calls.append(1)
        return order(*args)

    monkeypatch.setattr(first_last, "_order", counting)
    ranked(scattered(50), PICKS, elements=True)
    assert len(calls) == 4  # two of five picks share the order by last position


def test_without_picks_nothing_is_ranked() -> None:
    frame = scattered(3)
    ranks = ranked(frame, ())
    assert ranks.frame is frame
    assert ranks.made == ()


def as_before(held: Mapping[str, bytes], step: WindowedStep) -> dict[str, bytes]:
    """Rewrite state to the older layout: elements in a frame of their own, without layout version or digests."""
    found = {}
    for place, data in held.items():
        block = unpack(data, place)
        facts = {name: each for name, each in block.facts.items() if name not in ("form", "digests")}
        frames = dict(block.frames)
        for rows in (WINDOWS, "strips"):
            for pick in picks_of(step) if rows in frames else ():
                old = [VALUE, *([BY] if pick.by else []), *POSITION]
                named = dict(zip(pick.columns, old, strict=True))
                items = frames[rows].select("team", START, END, *pick.columns).rename(named).drop_nulls(VALUE)
                frames[rows] = frames[rows].drop(*pick.columns)
                if items.height:
                    frames[f"items:{pick.name}"] = items
            for name in sets_of(step) if rows in frames else ():
                items = frames[rows].select("team", START, END, pl.col(f"@{name}").alias(VALUE)).explode(VALUE)
                frames[rows] = frames[rows].drop(f"@{name}")
                frames[f"items:{name}"] = items.drop_nulls(VALUE)
        found[place] = pack(Block(frames, facts))
    return found


SPEAKING = sl.after_watermark(early=sl.after_count(1), late=sl.after_count(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "window",
    [sl.tumbling(seconds=10), sl.session(seconds=5), sl.everything(), sl.sliding(seconds=10, every="5s")],
    ids=str,
)
@pytest.mark.parametrize("trigger", [sl.after_watermark(), SPEAKING], ids=["on time", "at any time"])
def test_state_of_an_older_layout_is_migrated_while_running(window: Any, trigger: Any) -> None:
    step = asking(window=window, trigger=trigger, aggregates=BEST, accumulation=sl.accumulating, lateness=60_000)
    now, before = KeyGroup(step), KeyGroup(step)
    for group in (now, before):
        group.play(("red", 5, 1_000), ("blue", 7, 2_000), ("red", 3, 1_500), ("green", 1, 9_000))
    before.held = as_before(before.held, step)
    assert read_index(before.held).form == 1
    columns = tuple(name for name, _ in BEST)
    for plays, mark in (
        ([("red", 4, 1_200)], 4_000), ([("blue", 9, 2_500), ("blue", 2, 500)], 20_000), ([("red", 8, 3_000)], 90_000),
    ):  # fmt: skip
        one, other = (group.play(*plays, watermark=mark) for group in (now, before))
        assert said(one, *columns) == said(other, *columns)
    assert read_index(before.held).form == FORM


def test_the_first_batch_after_an_upgrade_reads_all_state() -> None:
    step = asking(aggregates=BEST, lateness=60_000)
    group = KeyGroup(step)
    group.play(("red", 5, 1_000), ("red", 6, 31_000))
    group.held = as_before(group.held, step)
    group.play(("red", 7, 31_500))
    assert group.reads == [INDEX, "slice:0", "slice:3"]
    assert all(not name.startswith("items:") for name in unpack(group.held["slice:0"], "").frames)
    group.play(("red", 8, 31_600))
    assert group.reads == [INDEX, "slice:3"]


def test_a_savepoint_of_an_older_layout_is_migrated() -> None:
    step = asking(aggregates=BEST, lateness=60_000)
    group = KeyGroup(step)
    group.play(("red", 5, 1_000), ("red", 3, 2_000), ("blue", 4, 3_000))
    now, before = export([group.held]), export([as_before(group.held, step)])
    assert {*before.frames} > {*now.frames}
    again = fitted(before, step, Fit())
    assert {*again.frames} == {*now.frames}
    kept = now.frames[WINDOWS].columns
    assert again.frames[WINDOWS].select(kept).sort("team").rows() == now.frames[WINDOWS].sort("team").rows()


def test_a_window_of_an_older_layout_with_nulls_only_has_no_pick() -> None:
    step = asking(aggregates=(("oldest", sl.first("score")),))
    rows, items = in_rows(pl.DataFrame({"team": ["red"], START: [0], END: [1]}), {}, step)
    assert items == {}
    assert rows.select("@oldest", "@oldest.at").row(0) == (None, None)
