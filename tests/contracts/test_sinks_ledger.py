"""Contract of sinks for the ledger: a batch and its entry take effect together, once, for the newest driver."""

import pytest

from strandline.errors import SinkError, StateError
from strandline.kernel.output import Counts, Output
from strandline.kernel.watermarks import FOREVER, NEVER, Progress
from strandline.ports.ledger import LedgerEntry, Recorded
from strandline.ports.sinks import OpenSink
from tests.contracts.sinks import DEAD, entry, late, opened, pane, panes
from tests.contracts.stores import Store


def test_the_same_entry_twice_takes_effect_once(store: Store, sink: OpenSink) -> None:
    again = entry(sink, 0)
    assert sink.commit(panes(pane("red", 5)), again).fresh
    before = store.read()
    assert not sink.commit(panes(pane("red", 5)), again).fresh
    assert store.read() == before


def test_an_entry_repeated_by_a_newer_driver_takes_effect_once(store: Store, sink: OpenSink) -> None:
    assert sink.commit(panes(pane("red", 5)), entry(sink, 0)).fresh
    assert not sink.commit(panes(pane("red", 5)), entry(sink, 0)).fresh
    assert len(store.read()) == 1


def test_a_batch_made_from_another_range_is_refused(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5)), entry(sink, 0, digest="one", epoch=epoch))
    with pytest.raises(StateError, match="batch 0 is already in .* made from another range") as refused:
        sink.commit(panes(pane("red", 6)), entry(sink, 0, digest="other", epoch=epoch))
    assert "one… against other…" in refused.value.detail
    assert [row["total"] for row in store.read()] == [5]


def test_an_older_driver_is_fenced(store: Store) -> None:
    older, newer = opened(store), opened(store)
    first = older.claim("mine")
    assert newer.claim("mine") > first
    with pytest.raises(StateError, match="another driver has taken over this job"):
        older.commit(panes(pane("red", 5)), entry(older, 0, epoch=first))
    assert store.read() == []
    assert older.latest("mine") is None
    older.close()
    newer.close()


@pytest.mark.needs("append")
def test_jobs_of_other_lineages_do_not_fence_each_other(store: Store, sink: OpenSink) -> None:
    own = sink.claim("mine")
    sink.claim("theirs")
    assert sink.commit(panes(pane("red", 5)), entry(sink, 0, epoch=own)).fresh
    assert sink.commit(panes(pane("red", 7)), entry(sink, 0, lineage="theirs")).fresh
    assert [row["total"] for row in store.read()] == [5, 7]


def test_epochs_rise_also_over_a_restart(store: Store) -> None:
    epochs = []
    for _ in range(3):
        sink = opened(store)
        epochs.append(sink.claim("mine"))
        sink.close()
    assert epochs == sorted(set(epochs))


@pytest.mark.needs("evolve")
def test_a_batch_that_fails_in_the_middle_leaves_nothing(store: Store, sink: OpenSink) -> None:
    """Panes are written before late elements; if these fail, the panes must be rolled back too."""
    store.make("totals_late", "team bigint")
    epoch = sink.claim("mine")
    with pytest.raises(SinkError, match="the table 'totals_late' does not fit") as refused:
        sink.commit(Output(panes(pane("red", 5)).panes, late("red", 1), DEAD), entry(sink, 0, epoch=epoch))
    assert "team is " in refused.value.detail
    assert (store.read(), store.read("totals_dead"), store.read("totals_now")) == ([], [], [])
    assert sink.latest("mine") is None
    assert sink.commit(panes(pane("red", 6)), entry(sink, 0, epoch=epoch)).fresh
    assert [row["total"] for row in store.read()] == [6]


def test_a_batch_without_output_is_recorded_too(store: Store, sink: OpenSink) -> None:
    assert sink.commit(Output(progress=Progress(5_000, 9_000)), entry(sink, 7, digest="quiet")).fresh
    assert sink.latest("mine") == Recorded(7, "quiet", 5_000)
    assert (store.read(), store.read("totals_late"), store.read("totals_dead")) == ([], [], [])


def test_the_ledger_returns_recorded_entries_and_the_last_one(sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    assert sink.latest("mine") is None
    for batch, watermark in ((0, NEVER), (1, 4_000), (9, FOREVER)):
        output = Output(progress=Progress(watermark, 1), counts=Counts(read=3, contributed=3))
        sink.commit(output, entry(sink, batch, digest=f"digest {batch}", epoch=epoch))
        assert sink.latest("mine") == Recorded(batch, f"digest {batch}", watermark)
    assert sink.latest("theirs") is None


def test_committed_batches_are_visible_to_the_next_driver(store: Store) -> None:
    first = opened(store)
    first.commit(panes(pane("red", 5)), entry(first, 0, digest="kept"))
    first.close()
    second = opened(store)
    assert second.latest("mine") == Recorded(0, "kept", 5_000)
    assert len(store.read()) == 1
    second.close()


def test_two_sinks_in_one_store_keep_their_own_ledgers(store: Store) -> None:
    one, other = opened(store, table="one"), opened(store, table="other")
    first, second = one.claim("mine"), other.claim("mine")
    assert one.commit(panes(pane("red", 1)), entry(one, 0, epoch=first)).fresh
    assert other.latest("mine") is None
    assert other.commit(panes(pane("red", 2)), entry(other, 0, epoch=second)).fresh
    assert [row["total"] for row in store.read("one")] == [1]
    assert [row["total"] for row in store.read("other")] == [2]
    one.close()
    other.close()


def test_a_batch_with_a_gap_to_the_last_one_is_refused(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5)), LedgerEntry("mine", epoch, 0, "one", None, "at 10"))
    assert sink.commit(panes(pane("blue", 6)), LedgerEntry("mine", epoch, 7, "two", "at 10", "at 20")).fresh
    for apart in (
        LedgerEntry("mine", epoch, 8, "x", "at 15", "at 30"),
        LedgerEntry("mine", epoch, 5, "x", "at 20", "z"),
    ):
        with pytest.raises(StateError):
            sink.commit(panes(pane("red", 7, 2)), apart)
    assert [row["total"] for row in store.read()] == [5, 6]


def test_a_batch_older_than_the_kept_entries_is_refused(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    for batch in (0, 1_000, 1_800, 2_000):
        sink.mark(Output(), entry(sink, batch, epoch=epoch))
    assert not sink.mark(Output(), entry(sink, 1_800, epoch=epoch)).fresh
    with pytest.raises(StateError, match="batch 0 is new to .*, which is at batch 2000"):
        sink.commit(panes(pane("red", 5)), entry(sink, 0, epoch=epoch))
    assert store.read() == []
