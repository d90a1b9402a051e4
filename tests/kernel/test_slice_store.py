"""Slices and the index of a key group are read back as they were written."""

from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import strandline as sl
from strandline.errors import StateError
from strandline.kernel.aggregation.accumulators import identity
from strandline.kernel.blocks.block import END, START, Block, pack, unpack
from strandline.kernel.state import slice_store
from strandline.kernel.state.slice_store import FORM, HOLD, INDEX, Index, Slice, read_index, write_index
from strandline.kernel.watermarks import NEVER, PartitionProgress, Progress
from strandline.kernel.window.window_rows import OpenWindows, keeps_last_values
from strandline.kernel.window.window_slices import read_windows, write_windows
from strandline.model.steps import WindowedStep
from tests.kernel.batches import KeyGroup, asking

PROGRESS = Progress(5_000, 9_000, {"0": PartitionProgress(5_000, 9_000, lags=((1, ((0, 2), (34, 1))),))})
NOTHING = (pl.lit(7_000, pl.Int64), pl.lit(None, pl.Int64))


def windows(*rows: tuple[str | None, int, int | None], span: int = 10_000) -> pl.DataFrame:
    """Return windows with team, start and hold."""
    frame = pl.DataFrame(rows, {"team": pl.String, START: pl.Int64, HOLD: pl.Int64}, orient="row")
    return frame.with_columns((pl.col(START) + span).alias(END))


def test_an_index_survives_a_round_trip() -> None:
    windows = {-3: Slice(2, 100, 7_000, None, 9_999), 4: Slice(1, 50, 8_000, 12_000, None)}
    shared, beside = {0: Slice(3, 80, 6_000, None, 6_000)}, {0: Slice(1, 20, 6_000, None, None)}
    others = {7: Slice(1, 2, 3, None, None, 4, 5)}
    index = Index(PROGRESS, 17, {"slice": windows, "strips": shared, "strips:beside": beside, "left": others})
    assert read_index({INDEX: write_index(index)}) == index


def test_an_index_has_the_digests_of_all_blocks() -> None:
    group = KeyGroup(asking(window=sl.sliding(seconds=10, every="5s"), lateness=60_000))
    for number in range(4):
        group.play(("amber", 1, 4_000 * number), ("blue", 2, 4_000 * number), watermark=3_000 * number)
        digests = {place: slice_store.digest(data) for place, data in group.held.items() if place != INDEX}
        assert read_index(group.held).digests == digests


def test_state_of_a_later_release_raises_an_error_with_a_hint() -> None:
    facts = unpack(write_index(Index(PROGRESS)), INDEX).facts
    with pytest.raises(StateError, match=f"the state of this job has form {FORM + 1}") as refused:
        read_index({INDEX: pack(Block(facts={**facts, "form": FORM + 1}))})
    assert refused.value.hint == "a later release wrote it: run the job with that release"


def test_a_key_group_without_state_has_an_empty_index() -> None:
    assert read_index({}) == Index()
    assert read_windows({}, [1, 2]) == OpenWindows()


@pytest.mark.parametrize(
    ("watermark", "clock", "due"),
    [(6_999, 0, set()), (7_000, 0, {1}), (6_999, 12_000, set()), (6_999, 12_001, {2}), (9_000, 99_999, {1, 2})],
)
def test_a_slice_is_due_when_the_watermark_reaches_it_or_the_clock_passes_it(
    watermark: int, clock: int, due: set[int]
) -> None:
    index = Index(stores={"slice": {1: Slice(1, 1, 7_000, None, None), 2: Slice(1, 1, 8_000, 12_000, None)}})
    assert slice_store.due(index.store("slice"), Progress(watermark, clock)) == due


def test_the_output_watermark_stays_below_every_hold() -> None:
    slices = {1: Slice(1, 1, 0, None, 4_000), 2: Slice(2, 1, 0, None, 3_000), 3: Slice(4, 1, 0, None, None)}
    assert Index(PROGRESS, stores={"slice": slices}).output_watermark == 2_999
    assert Index(PROGRESS).output_watermark == 5_000
    assert Index().output_watermark == NEVER
    assert Index(stores={"slice": slices}).rows == 7


def test_windows_are_read_from_the_slices_they_were_written_to() -> None:
    definition = asking(aggregates=(("all", sl.collect("score")),))
    rows = windows(("red", 0, 5), ("blue", 0, 3), (None, 10_000, None), ("red", -10_000, None))
    items = rows.select(*identity(["team"])).with_columns(pl.lit(1).alias("@value"))
    writes, entries = write_windows(OpenWindows(rows, {"all": items}), [0, 7], ["team"], definition, NOTHING)
    assert {place: data is None for place, data in writes.items()} == {
        "slice:0": False, "slice:7": True, "slice:1": False, "slice:-1": False,
    }  # fmt: skip
    assert {number: (entry.rows, entry.due_watermark, entry.hold) for number, entry in entries.items()} == {
        0: (2, 7_000, 3), 1: (1, 7_000, None), -1: (1, 7_000, None),
    }  # fmt: skip
    assert all(entry.size == len(writes[f"slice:{number}"] or b"") for number, entry in entries.items())
    held = {place: data for place, data in writes.items() if data is not None}
    back = read_windows(held, [-1, 0, 1])
    assert back.windows is not None
    assert_frame_equal(back.windows, rows.sort(START, "team"))
    assert_frame_equal(back.items["all"].sort(START, "team"), items.sort(START, "team"))
    some = read_windows(held, [1]).windows
    assert some is not None
    assert some["team"].to_list() == [None]


def test_the_bytes_of_a_slice_do_not_depend_on_the_order_of_its_rows() -> None:
    rows = windows(("red", 0, 5), ("a team with a name that fits no view", 0, 3), (None, 0, None))
    one, _ = write_windows(OpenWindows(rows), [0], ["team"], asking(), NOTHING)
    other, _ = write_windows(OpenWindows(rows.reverse()), [0], ["team"], asking(), NOTHING)
    assert one == other


def test_an_empty_slice_is_deleted() -> None:
    for kept in (OpenWindows(), OpenWindows(windows())):
        assert write_windows(kept, [3, 4], ["team"], asking(), NOTHING) == ({"slice:3": None, "slice:4": None}, {})


@pytest.mark.parametrize(
    ("options", "keeps"),
    [
        ({"accumulation": sl.retracting}, True),
        ({"accumulation": sl.accumulating}, False),
        ({"trigger": sl.repeatedly(sl.when("last.total is None"))}, True),
        ({"trigger": sl.repeatedly(sl.when("total > 1"))}, False),
    ],
)
def test_last_emitted_values_are_kept_only_where_needed(options: dict[str, Any], keeps: bool) -> None:
    definition: WindowedStep = asking(**options)
    group = KeyGroup(definition)
    group.play(("red", 5, 0))
    group.play(("red", 5, 0), watermark=10)
    assert keeps_last_values(definition) is keeps
    kept = read_windows(group.held, [0]).windows
    assert kept is not None
    assert any(name.startswith("@told") for name in kept.columns) is keeps
