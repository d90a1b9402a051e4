"""Contract of upsert sinks: they hold the latest answers themselves."""

from typing import Any

import polars as pl
import pytest

from strandline.errors import InvalidStep, PlanError
from strandline.kernel.blocks.block import END
from strandline.kernel.output import Output
from strandline.kernel.window.panes import RETRACTION
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from tests.contracts.sinks import entry, opened, pane, panes
from tests.contracts.stores import Store


def answers(store: Store) -> list[tuple[Any, ...]]:
    return sorted(((row["team"], row["window_start"][11:19], row["total"]) for row in store.read()), key=str)


@pytest.mark.needs("upsert")
def test_by_key_a_newer_pane_replaces_the_older(store: Store) -> None:
    sink = opened(store, asked={"mode": "upsert"})
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5), pane("blue", 1), pane("red", 2, start=10_000)), entry(sink, 0, epoch=epoch))
    # Rows have no order of their own: the later pane counts, and a retraction only if nothing follows it.
    sink.commit(
        panes(
            pane("red", 9, 2), pane("red", 5, taken_back=True), pane("red", 8, 1), pane("red", 8, 1, taken_back=True)
        ),
        entry(sink, 1, epoch=epoch),
    )
    assert answers(store) == [("blue", "00:00:00", 1), ("red", "00:00:00", 9), ("red", "00:00:10", 2)]
    sink.close()


@pytest.mark.needs("upsert")
def test_by_key_a_retraction_without_a_successor_deletes_the_row(store: Store) -> None:
    sink = opened(store, asked={"mode": "upsert"})
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5), pane("red", 2, start=10_000), pane(None, 3)), entry(sink, 0, epoch=epoch))
    taken = panes(pane("red", 5, taken_back=True), pane(None, 3, taken_back=True), pane("blue", 1, taken_back=True))
    sink.commit(taken, entry(sink, 1, epoch=epoch))
    assert answers(store) == [("red", "00:00:10", 2)]
    sink.commit(panes(pane("red", 2, start=10_000, taken_back=True)), entry(sink, 2, epoch=epoch))
    assert answers(store) == []
    sink.close()


@pytest.mark.needs("upsert")
def test_by_key_a_null_is_a_key_like_any_other(store: Store) -> None:
    sink = opened(store, asked={"mode": "upsert"})
    epoch = sink.claim("mine")
    for batch in range(3):
        both = panes(pane(None, batch, batch), pane("red", batch * 10, batch))
        sink.commit(both, entry(sink, batch, epoch=epoch))
    assert answers(store) == [("red", "00:00:00", 20), (None, "00:00:00", 2)]
    sink.close()


@pytest.mark.needs("upsert", Delivery.AT_LEAST_ONCE)
def test_by_key_a_repeated_batch_changes_nothing(store: Store) -> None:
    sink = opened(store, asked={"mode": "upsert"})
    again = entry(sink, 0)
    for _ in range(2):
        sink.write(panes(pane("red", 5), pane("blue", 1)), again)
    assert answers(store) == [("blue", "00:00:00", 1), ("red", "00:00:00", 5)]
    sink.close()


@pytest.mark.needs("upsert", "compare")
def test_by_a_key_without_a_window_the_latest_window_stays(store: Store) -> None:
    sink = opened(store, asked={"key": ["team"]})
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 2, start=10_000), pane("red", 5)), entry(sink, 0, epoch=epoch))
    assert answers(store) == [("red", "00:00:10", 2)]
    sink.commit(panes(pane("red", 5, taken_back=True), pane("red", 6, 1)), entry(sink, 1, epoch=epoch))
    assert answers(store) == [("red", "00:00:10", 2)]
    sink.commit(panes(pane("red", 5, taken_back=True)), entry(sink, 2, epoch=epoch))
    assert answers(store) == [("red", "00:00:10", 2)]
    sink.commit(panes(pane("red", 7, start=20_000)), entry(sink, 3, epoch=epoch))
    assert answers(store) == [("red", "00:00:20", 7)]
    sink.close()


@pytest.mark.needs("upsert", "compare")
def test_by_a_key_with_the_start_of_growing_windows_the_longest_stays(store: Store) -> None:
    sink = opened(store, asked={"key": ["team", "window_start"]})
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5), pane("red", 8) | {END: 20_000}), entry(sink, 0, epoch=epoch))
    assert answers(store) == [("red", "00:00:00", 8)]
    sink.commit(panes(pane("red", 5, taken_back=True), pane("red", 6, 1)), entry(sink, 1, epoch=epoch))
    assert answers(store) == [("red", "00:00:00", 8)]
    sink.commit(panes(pane("red", 9, 1) | {END: 20_000}), entry(sink, 2, epoch=epoch))
    assert answers(store) == [("red", "00:00:00", 9)]
    sink.close()


@pytest.mark.needs("upsert", "compare")
def test_by_a_key_without_a_window_merged_sessions_are_replaced_by_the_merged_one(store: Store) -> None:
    sink = opened(store, asked={"key": ["team"]})
    epoch = sink.claim("mine")
    apart = [pane("red", 2, 3) | {END: 4_000}, pane("red", 5, 1, start=6_000) | {END: 20_000}]
    sink.commit(panes(*apart), entry(sink, 0, epoch=epoch))
    assert answers(store) == [("red", "00:00:06", 5)]
    met = pane("red", 8) | {END: 20_000}
    sink.commit(panes(met, *(each | {RETRACTION: True} for each in apart)), entry(sink, 1, epoch=epoch))
    assert answers(store) == [("red", "00:00:00", 8)]
    sink.close()


@pytest.mark.needs("upsert")
def test_elements_are_written_by_the_configured_key(store: Store) -> None:
    definition = store.sink(key=["id"])
    sink = definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, None))
    epoch = sink.claim("mine")
    sink.commit(Output(pl.DataFrame({"id": [1, 2, 1], "name": ["a", "b", "c"]})), entry(sink, 0, epoch=epoch))
    sink.commit(Output(pl.DataFrame({"id": [2, 3], "name": ["d", None]})), entry(sink, 1, epoch=epoch))
    assert sorted((row["id"], row["name"]) for row in store.read()) == [(1, "c"), (2, "d"), (3, None)]
    sink.close()


@pytest.mark.needs("upsert")
def test_elements_without_a_key_are_refused(store: Store) -> None:
    definition = store.sink(mode="upsert")
    with pytest.raises(InvalidStep, match="writes elements by key, and no key is given"):
        definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, None))


@pytest.mark.needs("upsert")
def test_an_unknown_key_column_is_reported(store: Store) -> None:
    with pytest.raises(InvalidStep, match="needs the column 'club', which the rows do not have"):
        opened(store, asked={"key": ["club", "window_start"]})


@pytest.mark.parametrize("asked", [{"mode": "replace"}, {"mode": "append", "key": ["team"]}, {"table": ""}])
@pytest.mark.needs("append", "upsert", "compare")
def test_invalid_table_settings_are_refused(store: Store, asked: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        store.sink(**asked)
