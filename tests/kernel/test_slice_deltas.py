"""Changes to a large slice are kept in deltas; the slice itself is not rewritten."""

import polars as pl
import pytest

import strandline as sl
from strandline.errors import BrokenBlock
from strandline.kernel.blocks.block import Block, open_block, pack, unpack
from strandline.kernel.state import slice_deltas
from strandline.kernel.state.slice_rows import GONE, ROW, apply_deltas
from strandline.kernel.state.slice_rows import WINDOWS as STORE
from strandline.kernel.state.slice_store import INDEX, Slice, frames_of, read_index
from strandline.kernel.state_export import export
from strandline.kernel.window.window_slices import takes_deltas
from strandline.model.panes import Emit
from strandline.model.steps import WindowedStep
from tests.kernel.batches import KeyGroup, asking, said

EARLY_AND_LATE = sl.after_watermark(early=sl.after_count(1), late=sl.after_count(1))
CORRECTING = asking(trigger=EARLY_AND_LATE, accumulation=sl.retracting, lateness=60_000)
MANY = 40
WINDOWS = STORE.rows
SLICE, DELTA = "slice:0", "changes:0"


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat slices of forty windows as large."""
    monkeypatch.setattr(slice_deltas, "LARGE", MANY)


def full(step: WindowedStep = CORRECTING) -> KeyGroup:
    """Return a key group with a slice of many windows that have emitted on time."""
    group = KeyGroup(step)
    group.play(*((f"team {number:02}", number, 1_000) for number in range(MANY)), watermark=9_999)
    return group


def test_a_late_element_writes_a_delta_of_the_slice_of_its_window() -> None:
    group = full()
    before = group.held[SLICE]
    late = group.play(("team 07", 100, 2_000))
    assert said(late) == [("-", "team 07", 0, 7, "on_time"), ("+", "team 07", 0, 107, "late")]
    assert set(late.writes) == {"index", DELTA}
    assert group.held[SLICE] is before
    delta = unpack(group.held[DELTA], DELTA).frames
    assert (delta[WINDOWS]["team"].to_list(), delta[GONE][ROW].to_list()) == (["team 07"], [7])


def test_the_next_batch_reads_earlier_deltas() -> None:
    group = full()
    group.play(("team 07", 100, 2_000))
    group.play(("team 09", 1, 2_000))
    again = group.play(("team 07", 1_000, 2_000), ("a new team", 5, 2_000))
    assert said(again) == [
        ("+", "a new team", 0, 5, "late"),
        ("-", "team 07", 0, 107, "late"), ("+", "team 07", 0, 1_107, "late"),
    ]  # fmt: skip
    assert group.reads == ["index", SLICE, DELTA, f"{DELTA}:2"]
    entry = read_index(group.held).store("slice")[0]
    assert (entry.rows, entry.gone, entry.deltas) == (MANY + 1, 3, 3)
    assert entry.size == sum(len(data) for place, data in group.held.items() if place != INDEX)


@pytest.mark.slow
def test_deltas_of_similar_size_are_merged() -> None:
    """So there are few blocks, and each row is rarely rewritten."""
    group = full(asking(trigger=EARLY_AND_LATE, accumulation=sl.accumulating, lateness=60_000))
    sizes: list[list[int]] = []
    for number in range(20):
        emitted = said(group.play((f"new {number:02}", number, 2_000)))
        assert emitted == [("+", f"new {number:02}", 0, number, "late")]
        there = STORE.delta_places(0, group.held)
        assert [place for place in group.held if place.startswith("changes")] == there
        sizes.append([unpack(group.held[place], place).frames[WINDOWS].height for place in there])
    assert sizes[:8] == [[1], [1, 1], [1, 1, 1], [4], [4, 1], [4, 1, 1], [4, 1, 1, 1], [4, 4]]
    assert sizes[11:17] == [[4, 4, 4], [4, 4, 4, 1], [4, 4, 4, 1, 1], [4, 4, 4, 1, 1, 1], [16], [16, 1]]
    assert said(group.play(("new 03", 100, 2_000))) == [("+", "new 03", 0, 103, "late")]


@pytest.mark.slow
def test_a_window_that_changes_with_every_batch_needs_no_more_space() -> None:
    group = full()
    for number in range(20):
        again = group.play(("team 07", 1, 2_000))
        assert said(again)[-1] == ("+", "team 07", 0, 8 + number, "late")
    entry = read_index(group.held).store("slice")[0]
    assert entry.rows == MANY
    assert entry.deltas < 4
    assert entry.gone == entry.deltas  # one row in the slice, and one in every delta but the last


def test_a_slice_with_many_changes_is_rewritten() -> None:
    group = full()
    group.play(("team 07", 100, 2_000))
    many = group.play(*((f"team {number:02}", 1, 2_000) for number in range(MANY // 2)))
    assert many.writes[DELTA] is None
    assert DELTA not in group.held
    assert read_index(group.held).store("slice")[0].deltas == 0
    assert len(said(many)) == MANY  # half of them, each with a retraction and a new pane


def test_an_export_applies_the_deltas_of_a_slice() -> None:
    group = full()
    group.play(("team 07", 100, 2_000), ("a new team", 5, 2_000))
    rows = export([group.held]).frames[WINDOWS]
    assert rows.height == MANY + 1
    assert ROW not in rows.columns
    found = dict(zip(rows["team"], rows["@spoken"], strict=True))
    assert (found["team 07"], found["a new team"], found["team 08"]) == (2, 1, 1)
    assert [place for place, _ in frames_of(group.held)] == [SLICE]


def test_a_delta_replaces_rows_of_its_slice_and_of_earlier_deltas() -> None:
    base = {WINDOWS: pl.DataFrame({"team": ["a", "b", "c"], "total": [1, 2, 3]})}
    first = pl.DataFrame({"team": ["b", "d"], "total": [20, 4]}), pl.DataFrame({ROW: [1]})
    second = pl.DataFrame({"team": ["d"], "total": [40]}), pl.DataFrame({ROW: [4]})
    changed = [open_block(pack(Block({WINDOWS: rows, GONE: gone})), "") for rows, gone in (first, second)]
    assert apply_deltas(STORE, base, changed[:1])[WINDOWS].rows() == [("a", 1), ("c", 3), ("b", 20), ("d", 4)]
    assert apply_deltas(STORE, base, changed)[WINDOWS].rows() == [("a", 1), ("c", 3), ("b", 20), ("d", 40)]


def test_deltas_of_form_2_can_be_read() -> None:
    """In form 2 each row of the one delta contains the position that it replaces."""
    group = full()
    group.play(("team 07", 100, 2_000), ("a new team", 5, 2_000))
    rows = unpack(group.held[DELTA], DELTA).frames[WINDOWS]
    replaced = pl.Series(ROW, [None, 7], pl.Int64)
    assert rows["team"].to_list() == ["a new team", "team 07"]
    group.held[DELTA] = pack(Block({WINDOWS: rows.with_columns(replaced)}))
    facts = dict(unpack(group.held[INDEX], INDEX).facts)
    (*entry, _, _) = facts["slices"]["0"]
    group.held[INDEX] = pack(Block(facts={**facts, "slices": {"0": [*entry, rows.height]}, "form": 2, "digests": {}}))
    found = export([group.held]).frames[WINDOWS]
    assert found.height == MANY + 1
    assert ROW not in found.columns
    again = group.play(("team 07", 1_000, 2_000), ("a new team", 1, 2_000))
    assert said(again) == [
        ("-", "a new team", 0, 5, "late"), ("+", "a new team", 0, 6, "late"),
        ("-", "team 07", 0, 107, "late"), ("+", "team 07", 0, 1_107, "late"),
    ]  # fmt: skip
    assert (read_index(group.held).store("slice")[0].rows, read_index(group.held).store("slice")[0].deltas) == (
        MANY + 1,
        2,
    )
    assert export([group.held]).frames[WINDOWS].height == MANY + 1


def test_a_slice_that_is_due_is_read_whole() -> None:
    group = full(asking(trigger=EARLY_AND_LATE, accumulation=sl.accumulating, lateness=60_000))
    group.play(("team 07", 100, 2_000))
    gone = group.play(("team 08", 1, 2_000), watermark=69_999)
    assert said(gone) == [("+", "team 08", 0, 9, "late")]
    assert {place for place, data in gone.writes.items() if data is None} == {SLICE, DELTA}
    assert set(group.held) == {"index"}
    assert gone.state_rows == 0


@pytest.mark.parametrize("final", [Emit.IF_NON_EMPTY, Emit.ALWAYS])
def test_expired_windows_emit_a_final_pane_if_they_must(final: Emit) -> None:
    waiting = sl.after_watermark(early=sl.after_count(1), late=sl.after_count(2))
    group = full(asking(trigger=waiting, accumulation=sl.accumulating, lateness=60_000, final_pane=final))
    group.play(("team 07", 100, 2_000))  # the first of two elements that its trigger needs
    gone = said(group.play(watermark=69_999))
    assert ("+", "team 07", 0, 107, "late") in gone
    assert len(gone) == (MANY if final is Emit.ALWAYS else 1)


def test_windows_that_end_and_expire_in_one_batch_emit_an_on_time_pane() -> None:
    group = KeyGroup(CORRECTING)
    group.play(*((f"team {number:02}", number, 1_000) for number in range(MANY)))
    emitted = said(group.play(watermark=90_000))
    assert len(emitted) == 2 * MANY
    assert {timing for *_, timing in emitted} == {"early", "on_time"}


def test_a_hold_ends_when_the_changed_window_fires() -> None:
    """The window that held the output watermark back has fired; its slice has no hold any more."""
    step = asking(trigger=sl.repeatedly(sl.after_count(2)), accumulation=sl.accumulating, lateness=60_000)
    group = KeyGroup(step)
    group.play(*((f"team {number:02}", number, 1_000) for number in range(MANY) for _ in range(2)))
    first = group.play(("team 07", 1, 1_000))
    assert read_index(group.held).store("slice")[0].hold == 9_999
    second = group.play(("team 07", 1, 1_000))
    assert read_index(group.held).store("slice")[0] == Slice(
        MANY, sum(len(group.held[place]) for place in (SLICE, *STORE.delta_places(0, 2))), 9_999, None, None, 2, 2
    )
    assert said(first) == []
    assert said(second) == [("+", "team 07", 0, 16, "early")]


def test_damaged_deltas_raise_an_error_with_their_place() -> None:
    group = full()
    group.play(("team 07", 1, 2_000))
    group.held[DELTA] = group.held[DELTA][:-1] + b"?"
    with pytest.raises(BrokenBlock, match="the block at changes:0 is damaged"):
        group.play(("team 07", 1, 2_000))


def test_items_sessions_counts_and_shared_slices_get_no_deltas() -> None:
    entry = {0: Slice(MANY, 1, 0, None, None)}
    plain = asking(lateness=60_000)
    assert takes_deltas(plain)
    assert slice_deltas.slices_with_few_changes(entry, {0: 1}, set()) == {0}
    assert slice_deltas.slices_with_few_changes(entry, {0: 1}, {0}) == frozenset()
    assert slice_deltas.slices_with_few_changes(entry, {0: MANY // 2}, set()) == frozenset()
    for other in (
        asking(window=sl.session(seconds=5)), asking(window=sl.count_window(3)),
        asking(window=sl.sliding(seconds=10, every="5s")), asking(aggregates=(("all", sl.collect("score")),)),
    ):  # fmt: skip
        assert not takes_deltas(other)
