"""One batch of one key group: split off late elements, add, advance, fire, expire."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.errors import BrokenBlock, StateError
from strandline.kernel.blocks.block import AT, END, NEW, OFFSET, PARTITION, REASON, START, Block, pack, unpack
from strandline.kernel.output import Counts, to_block
from strandline.kernel.step import WATERMARK, step
from strandline.kernel.watermarks import FOREVER, Control, Seen
from strandline.kernel.window.panes import FIRST, INDEX, LAST, NONSPECULATIVE, RETRACTION, TIMESTAMP, TIMING
from strandline.kernel.window.prepare import prepare
from strandline.model.panes import Accumulation, Emit
from strandline.model.triggers import Trigger
from tests.kernel.batches import KeyGroup, Score, asking, elements, refused, said

EARLY_AND_LATE = sl.after_watermark(early=sl.after_count(1), late=sl.after_count(1))
CORRECTING = asking(trigger=EARLY_AND_LATE, accumulation=sl.retracting, lateness=60_000)

both_ways = pytest.mark.parametrize("combined", [False, True], ids=["one by one", "combined"])
"""Pre-aggregated and single elements must give the same result."""


@both_ways
def test_a_window_fires_when_the_watermark_reaches_its_end(combined: bool) -> None:
    group = KeyGroup(asking(), combined)
    assert said(group.play(("red", 5, 1_000), ("blue", 1, 2_000), ("red", 2, 9_999), watermark=9_998)) == []
    assert said(group.play(watermark=9_999)) == [("+", "blue", 0, 1, "on_time"), ("+", "red", 0, 7, "on_time")]


@both_ways
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (sl.discarding, [[("+", 7)], [("+", 7)], [("+", 8)]]),
        (sl.accumulating, [[("+", 7)], [("+", 14)], [("+", 22)]]),
        (sl.retracting, [[("+", 7)], [("-", 7), ("+", 14)], [("-", 14), ("+", 22)]]),
    ],
)
def test_the_classic_example_under_each_accumulation(how: Accumulation, expected: list[Any], combined: bool) -> None:
    group = KeyGroup(asking(trigger=EARLY_AND_LATE, accumulation=how), combined)
    batches = [group.play(("red", score, 1_000)) for score in (7, 7, 8)]
    assert [said(batch, "total") for batch in batches] == expected


@both_ways
def test_a_late_score_retracts_the_old_total(combined: bool) -> None:
    group = KeyGroup(CORRECTING, combined)
    assert said(group.play(("red", 5, 1_000))) == [("+", "red", 0, 5, "early")]
    assert said(group.play(watermark=10_000)) == [("-", "red", 0, 5, "early"), ("+", "red", 0, 5, "on_time")]
    late = group.play(("red", 3, 2_000))
    assert said(late) == [("-", "red", 0, 5, "on_time"), ("+", "red", 0, 8, "late")]


def test_a_retraction_repeats_the_withdrawn_pane_in_every_column() -> None:
    group = KeyGroup(CORRECTING)
    last: pl.DataFrame | None = None
    for batch in (
        group.play(("red", 5, 1_000)),
        group.play(("red", 4, 3_000)),
        group.play(watermark=10_000),
        group.play(("red", 3, 2_000)),
        group.play(("red", 1, 2_000)),
    ):
        assert batch.rows is not None
        withdrawn = batch.rows.filter(RETRACTION)
        expected = [] if last is None else last.with_columns(pl.lit(True).alias(RETRACTION)).rows()
        assert withdrawn.rows() == expected
        last = batch.rows.filter(~pl.col(RETRACTION))
    assert last is not None


@both_ways
def test_panes_have_indexes_timings_and_first_and_last_flags(combined: bool) -> None:
    group = KeyGroup(asking(trigger=EARLY_AND_LATE, accumulation=sl.accumulating, lateness=20_000), combined)
    columns = (TIMING, INDEX, NONSPECULATIVE, FIRST, LAST, TIMESTAMP)
    batches = [
        group.play(("red", 5, 1_000)),
        group.play(("red", 5, 1_000)),
        group.play(watermark=9_999),
        group.play(("red", 5, 1_000)),
        group.play(("red", 5, 1_000), watermark=29_999),
    ]
    assert [pane for batch in batches for pane in said(batch, *columns)] == [
        ("+", "early", 0, -1, True, False, 9_999),
        ("+", "early", 1, -1, False, False, 9_999),
        ("+", "on_time", 2, 0, False, False, 9_999),
        ("+", "late", 3, 1, False, False, 9_999),
        ("+", "late", 4, 2, False, True, 9_999),
    ]


def test_panes_are_sorted_by_key_and_window_with_each_retraction_before_its_replacement() -> None:
    group = KeyGroup(CORRECTING)
    scores: tuple[Score, ...] = (("red", 1, 11_000), (None, 1, 0), ("blue", 1, 0), ("red", 1, 0))
    group.play(*scores)
    batch = group.play(*reversed(scores))
    assert said(batch, "team", START) == [
        (sign, *where) for where in ((None, 0), ("blue", 0), ("red", 0), ("red", 10_000)) for sign in "-+"
    ]


@both_ways
def test_a_batch_never_makes_its_own_elements_late(combined: bool) -> None:
    group = KeyGroup(asking(), combined)
    batch = group.play(("red", 5, 1_000), ("red", 1, 99_000), watermark=90_000)
    assert said(batch) == [("+", "red", 0, 5, "on_time")]
    assert refused(batch) == []


@both_ways
def test_an_element_is_late_once_its_window_has_expired(combined: bool) -> None:
    group = KeyGroup(asking(lateness=5_000), combined)
    group.play(watermark=14_998)
    assert refused(group.play(("red", 5, 9_999))) == []
    group.play(watermark=14_999)
    batch = group.play(("red", 5, 9_999), ("red", 1, 10_000))
    assert refused(batch) == [("red", 5, "expired")]
    assert batch.contributed == 1


def test_a_late_row_has_the_columns_of_its_element_its_window_and_the_watermark() -> None:
    group = KeyGroup(asking())
    group.play(watermark=50_000)
    late = group.play(("red", 5, 1_000), ("blue", 6, 12_000)).late
    assert late is not None
    assert late.select("team", "score", AT, PARTITION, OFFSET, START, END, REASON, WATERMARK).rows() == [
        ("red", 5, 1_000, "0", 0, 0, 10_000, "expired", 50_000),
        ("blue", 6, 12_000, "0", 1, 10_000, 20_000, "expired", 50_000),
    ]


def test_elements_of_a_window_closed_by_its_trigger_are_late_as_closed() -> None:
    group = KeyGroup(asking(trigger=sl.after_count(2), lateness=60_000))
    assert said(group.play(("red", 1, 0), ("red", 2, 0), ("blue", 4, 0)), "team", "total", LAST) == [
        ("+", "red", 3, True)
    ]
    batch = group.play(("red", 5, 0), ("blue", 6, 0), ("red", 7, 10_000))
    assert refused(batch) == [("red", 5, "closed")]
    assert said(batch, "team", "total") == [("+", "blue", 10)]


def test_the_row_of_a_closed_window_is_deleted_when_it_expires() -> None:
    group = KeyGroup(asking(trigger=sl.after_count(1), lateness=5_000))
    group.play(("red", 1, 0))
    assert refused(group.play(("red", 2, 0), watermark=14_998)) == [("red", 2, "closed")]
    assert said(group.play(watermark=14_999)) == []
    assert list(group.held) == ["index"]
    assert refused(group.play(("red", 3, 0))) == [("red", 3, "expired")]


@both_ways
def test_a_bare_watermark_trigger_closes_with_the_on_time_pane(combined: bool) -> None:
    group = KeyGroup(asking(trigger=sl.after_watermark(), lateness=60_000), combined)
    group.play(("red", 5, 0))
    assert said(group.play(watermark=10_000), "total", TIMING, LAST) == [("+", 5, "on_time", True)]
    assert refused(group.play(("red", 3, 0))) == [("red", 3, "closed")]


def test_a_null_key_is_a_key_like_any_other_also_when_it_is_closed() -> None:
    group = KeyGroup(asking(trigger=sl.after_count(2), lateness=60_000))
    assert said(group.play((None, 1, 0), (None, 2, 0)), "team", "total") == [("+", None, 3)]
    assert refused(group.play((None, 4, 0))) == [(None, 4, "closed")]


@both_ways
def test_when_the_watermark_passes_the_end_and_the_lateness_at_once_there_is_one_pane(combined: bool) -> None:
    group = KeyGroup(asking(trigger=EARLY_AND_LATE, lateness=5_000), combined)
    batch = group.play(("red", 5, 0), watermark=20_000)
    assert said(batch, "total", TIMING, LAST) == [("+", 5, "on_time", True)]
    assert list(group.held) == ["index"]


@both_ways
def test_a_window_with_its_first_element_after_its_end_emits_late_panes_only(combined: bool) -> None:
    group = KeyGroup(asking(trigger=EARLY_AND_LATE, lateness=60_000), combined)
    group.play(watermark=10_000)
    assert said(group.play(("red", 5, 0)), TIMING, INDEX) == [("+", "late", 0)]
    assert said(group.play(("red", 5, 0)), TIMING, INDEX) == [("+", "late", 1)]


@pytest.mark.parametrize(("how", "value"), [(sl.discarding, 0), (sl.accumulating, 5), (sl.retracting, 5)])
def test_an_on_time_pane_without_new_elements_repeats_the_value_or_is_empty(how: Accumulation, value: int) -> None:
    group = KeyGroup(asking(trigger=EARLY_AND_LATE, accumulation=how, lateness=60_000))
    group.play(("red", 5, 0))
    batch = group.play(watermark=10_000)
    assert batch.rows is not None
    assert batch.rows.filter(~pl.col(RETRACTION)).select("total", TIMING, INDEX).rows() == [(value, "on_time", 1)]


def test_an_empty_on_time_pane_can_be_disabled_and_gets_no_index() -> None:
    group = KeyGroup(asking(trigger=EARLY_AND_LATE, on_time_pane=Emit.IF_NON_EMPTY, lateness=60_000))
    group.play(("red", 5, 0))
    assert said(group.play(watermark=10_000)) == []
    assert said(group.play(("red", 5, 0)), TIMING, INDEX, NONSPECULATIVE) == [("+", "late", 1, 0)]


@pytest.mark.parametrize(("final", "expected"), [(Emit.ALWAYS, [("+", 5, "late", True)]), (Emit.IF_NON_EMPTY, [])])
def test_a_final_pane_can_be_required(final: Emit, expected: list[Any]) -> None:
    group = KeyGroup(asking(accumulation=sl.accumulating, final_pane=final, lateness=5_000))
    group.play(("red", 5, 0), watermark=10_000)
    assert said(group.play(watermark=15_000), "total", TIMING, LAST) == expected


@both_ways
def test_the_never_trigger_emits_when_the_window_expires(combined: bool) -> None:
    group = KeyGroup(asking(trigger=sl.never(), lateness=5_000), combined)
    assert said(group.play(("red", 5, 0), watermark=12_000)) == []
    assert said(group.play(("red", 2, 0), watermark=14_999), "total", TIMING, LAST) == [("+", 7, "on_time", True)]


def test_without_a_bound_on_lateness_windows_stay_until_the_stream_ends() -> None:
    group = KeyGroup(asking(lateness=None))
    group.play(("red", 5, 0), watermark=10**15)
    assert said(group.play(("red", 2, 1)), "total", TIMING) == [("+", 2, "late")]
    group.play(drain=True)
    assert list(group.held) == ["index"]


@both_ways
def test_drain_closes_every_window(combined: bool) -> None:
    group = KeyGroup(asking(trigger=EARLY_AND_LATE, accumulation=sl.accumulating, lateness=60_000), combined)
    group.play(("red", 5, 0), ("blue", 6, 45_000))
    batch = group.play(drain=True)
    assert said(batch, "team", TIMING, LAST) == [("+", "blue", "on_time", True), ("+", "red", "on_time", True)]
    assert batch.progress.watermark == FOREVER
    assert list(group.held) == ["index"]


def test_processing_time_alone_fires_a_window() -> None:
    group = KeyGroup(asking(trigger=sl.after_watermark(early=sl.every(seconds=2))))
    assert said(group.play(("red", 5, 0), clock=1_000)) == []
    assert said(group.play(clock=3_000)) == []
    assert said(group.play(clock=3_001)) == [("+", "red", 0, 5, "early")]
    assert said(group.play(clock=9_000)) == []


def test_times_before_the_epoch_are_valid() -> None:
    group = KeyGroup(asking())
    group.play(("red", 5, -1), ("red", 2, -10_001))
    assert said(group.play(watermark=-1)) == [("+", "red", -20_000, 2, "on_time"), ("+", "red", -10_000, 5, "on_time")]


def test_only_slices_that_are_touched_or_due_are_read_and_written() -> None:
    group = KeyGroup(CORRECTING)
    group.play(*(("red", 1, start * 10_000) for start in range(5)))
    assert set(group.held) == {"index", *(f"slice:{number}" for number in range(5))}

    touched = group.play(("blue", 1, 25_000))
    assert group.reads == ["index", "slice:2"]
    assert set(touched.writes) == {"index", "slice:2"}

    due = group.play(watermark=9_999)
    assert group.reads == ["index", "slice:0"]
    assert set(due.writes) == {"index", "slice:0"}

    quiet = group.play(watermark=10_500)
    assert group.reads == ["index"]
    assert set(quiet.writes) == {"index"}

    expired = group.play(watermark=69_999)
    assert group.reads == ["index", *(f"slice:{number}" for number in range(5))]
    assert expired.writes["slice:0"] is None
    assert expired.writes["slice:1"] is not None


def test_a_slice_is_not_read_between_its_on_time_pane_and_its_expiry() -> None:
    definition = asking(trigger=sl.after_watermark(early=sl.every(seconds=2), late=sl.after_count(1)), lateness=60_000)
    group = KeyGroup(definition)
    group.play(("red", 5, 0), clock=1_000)
    group.play(clock=1_500, watermark=10_000)
    group.play(clock=60_000, watermark=20_000)
    assert group.reads == ["index"]
    group.play(clock=60_001, watermark=69_999)
    assert group.reads == ["index", "slice:0"]


def test_damaged_state_raises_an_error_with_its_place() -> None:
    group = KeyGroup(CORRECTING)
    group.play(("red", 1, 0))
    group.held["slice:0"] = group.held["slice:0"][:-1] + b"?"
    with pytest.raises(BrokenBlock, match="the block at slice:0 is damaged"):
        group.play(("red", 1, 0))


def test_pre_aggregated_elements_of_an_expired_window_raise_an_error() -> None:
    group = KeyGroup(asking())
    group.play(watermark=50_000)
    parts = prepare(elements([("red", 5, 0)]), ["team"], group.step, 1, -1).blocks[0]
    with pytest.raises(StateError, match="already gone"):
        group.take([parts], Control(0))


def many(first: int) -> pl.DataFrame:
    """Return elements with fractions, long names and nulls."""
    places = range(first, first + 120)
    return pl.DataFrame(
        {
            "team": [f"a team with a long name, number {n * 7 % 37}" if n % 5 else None for n in places],
            "score": [n * 0.1 for n in places],
            "name": [f"a name that fits no view {n * 7 % 13}" if n % 3 else None for n in places],
            AT: [n * 977 % 60_000 for n in places],
            PARTITION: ["0"] * 120,
            OFFSET: places,
        }
    )


EVERYTHING_KEPT = (
    ("total", sl.sum("score")),
    ("average", sl.mean("score")),
    ("spread", sl.variance("score")),
    ("most", sl.max("name")),
    ("all", sl.collect("name")),
    ("kinds", sl.count_distinct("name")),
    ("about", sl.approx_count_distinct("name", precision=6)),
    ("middle", sl.quantile("score", 0.5)),
    ("best", sl.top_k("name", 2, by="score")),
)


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [None, -(10**15)], ids=["one by one", "combined"])
@pytest.mark.parametrize(
    "options",
    [
        {"trigger": EARLY_AND_LATE, "accumulation": sl.retracting},
        {"trigger": EARLY_AND_LATE, "window": sl.sliding("10s", every="4s")},
        {"trigger": EARLY_AND_LATE, "window": sl.session("1s"), "accumulation": sl.retracting},
        {"trigger": sl.repeatedly(sl.when("last.total is None or total > 2 * last.total")), "window": sl.everything()},
        {"trigger": EARLY_AND_LATE, "evictor": sl.keep_last(2), "accumulation": sl.accumulating},
        {"window": sl.count_window(3, every=2)},
    ],
    ids=["tumbling", "sliding", "sessions", "conditions", "evicting", "counts"],
)
def test_a_batch_played_again_over_the_same_state_gives_the_same_bytes(options: Any, horizon: int | None) -> None:
    definition = asking(lateness=20_000, aggregates=EVERYTHING_KEPT, **options)
    group = KeyGroup(definition)
    for batch, first in enumerate((0, 120, 240)):
        blocks = list(prepare(many(first), ["team"], definition, 1, horizon).blocks.values())
        # The watermark stays behind, so that no pre-aggregated element is late.
        control = Control(batch, (Seen("0", 120, 5_000 * batch),))
        one, other = (step(dict(group.held), blocks, [control], group.spec) for _ in range(2))
        assert one.writes == other.writes
        assert pack(to_block(one, None, Counts())) == pack(to_block(other, None, Counts()))
        group.take(blocks, control)
    assert any(place != "index" for place in group.held)


scores = st.lists(
    st.tuples(st.sampled_from(["red", "blue", None]), st.integers(1, 9), st.integers(-25_000, 60_000)), max_size=8
)
batches = st.lists(
    st.tuples(scores, st.none() | st.integers(-30_000, 90_000), st.integers(0, 5_000)), min_size=1, max_size=6
)
triggers = st.sampled_from(
    [
        sl.repeatedly(sl.after_watermark()),
        sl.after_watermark(),
        EARLY_AND_LATE,
        sl.after_watermark(early=sl.every(seconds=2), late=sl.after_count(2)),
        sl.repeatedly(sl.after_count(3)),
        sl.after_count(2),
        sl.never(),
    ]
)


@given(batches, triggers, st.sampled_from(Accumulation), st.sampled_from([0, 5_000, None]))
def test_every_element_is_emitted_or_late_and_the_totals_match(
    played: list[Any], trigger: Trigger, how: Accumulation, lateness: int | None
) -> None:
    """Discarding panes sum up, retracting panes sum up with their sign, and the last accumulating pane is the total."""
    group = KeyGroup(asking(trigger=trigger, accumulation=how, lateness=lateness))
    clock, taken = 0, 0
    options: dict[Any, int] = {}
    for batch_scores, watermark, passed in played:
        clock += passed
        batch = group.play(*batch_scores, watermark=watermark, clock=clock)
        late = refused(batch)
        assert batch.contributed + len(late) == len(batch_scores)
        _answer(options, batch.rows, how)
        taken += sum(score for _, score, _ in batch_scores) - sum(score for _, score, _ in late)
    _answer(options, group.play(drain=True).rows, how)
    assert sum(options.values()) == taken
    assert list(group.held) == ["index"]


def _answer(options: dict[Any, int], panes: pl.DataFrame | None, how: Accumulation) -> None:
    expected = [] if panes is None else panes.select("team", START, "total", RETRACTION).rows()
    for team, start, total, is_retraction in expected:
        known = 0 if how is Accumulation.ACCUMULATING else options.get((team, start), 0)
        options[team, start] = known - total if is_retraction else known + total


@pytest.mark.slow
@given(batches, triggers, st.sampled_from(Accumulation), st.sampled_from([0, 5_000]))
def test_combining_before_the_shuffle_changes_nothing(
    played: list[Any], trigger: Trigger, how: Accumulation, lateness: int
) -> None:
    definition = asking(trigger=trigger, accumulation=how, lateness=lateness)
    plain, combined = KeyGroup(definition), KeyGroup(definition, combined=True)
    clock = 0
    for batch_scores, watermark, passed in played:
        clock += passed
        one = plain.play(*batch_scores, watermark=watermark, clock=clock)
        other = combined.play(*batch_scores, watermark=watermark, clock=clock)
        columns = ("team", START, "total", "plays", TIMING, INDEX, LAST)
        assert said(one, *columns) == said(other, *columns)
        assert refused(one) == refused(other)
        assert rows_of(plain) == rows_of(combined)


@given(scores, st.integers(1, 4), triggers)
def test_the_number_of_tasks_of_a_batch_does_not_matter(
    batch_scores: list[Score], tasks: int, trigger: Trigger
) -> None:
    definition = asking(trigger=trigger, lateness=60_000)
    whole, split = KeyGroup(definition), KeyGroup(definition)
    pieces = [batch_scores[number::tasks] for number in range(tasks)]
    blocks = [
        block for piece in pieces for block in prepare(elements(piece), ["team"], definition, 1, None).blocks.values()
    ]
    one = whole.play(*batch_scores, watermark=5_000)
    other = split.take(blocks, Control(0, (Seen("0", len(batch_scores), 5_001),)))
    assert said(one) == said(other)
    assert rows_of(whole) == rows_of(split)


def rows_of(group: KeyGroup) -> dict[str, Any]:
    """Return the state rows of a key group, independent of the memory behind null values."""
    blocks = {place: unpack(data, place) for place, data in group.held.items()}
    return {place: {name: frame.to_dicts() for name, frame in block.frames.items()} for place, block in blocks.items()}


def test_pre_aggregated_and_single_elements_merge_in_one_window() -> None:
    group = KeyGroup(asking(trigger=EARLY_AND_LATE))
    combined = prepare(elements([("red", 5, 0), ("red", 2, 0)]), ["team"], group.step, 1, -1).blocks[0]
    plain, other = (
        prepare(elements([("red", 1, 0)], first=first), ["team"], group.step, 1, None).blocks[0] for first in (7, 8)
    )
    batch = group.take([Block({**combined.frames, **plain.frames}), other], Control(0))
    assert said(batch, "total", "plays") == [("+", 9, 4)]
    assert batch.contributed == 4
    assert combined.frames["parts"][NEW].sum() == 2


@pytest.mark.parametrize("trigger", [sl.after_watermark(), sl.after_watermark(early=sl.repeatedly(sl.after_count(9)))])
@pytest.mark.parametrize("combined", [False, True])
def test_windows_of_many_keys_hold_the_same_whether_few_or_no_elements_come_to_them(
    trigger: Trigger, combined: bool
) -> None:
    group = KeyGroup(asking(trigger=trigger), combined)
    teams = [None, *(f"team {number}" for number in range(20))]
    group.play(*((team, 1, 0) for team in teams), watermark=0)
    group.play((None, 5, 1), ("team 3", 5, 1), ("new", 2, 1), ("team 4", 7, 10_000), watermark=1)
    group.play(("team 5", 3, 10_000), watermark=2)
    group.play(("team 3", 1, 1), ("team 5", 3, 10_001), watermark=3)
    totals = dict.fromkeys(teams, 1) | {None: 6, "team 3": 7, "new": 2}
    first = said(group.play(watermark=9_999), "team", START, "total")
    assert sorted(first, key=str) == sorted((("+", team, 0, total) for team, total in totals.items()), key=str)
    assert said(group.play(watermark=19_999), "team", START, "total") == [
        ("+", "team 4", 10_000, 7), ("+", "team 5", 10_000, 6),
    ]  # fmt: skip
