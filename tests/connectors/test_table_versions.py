"""Table versions: compared where both have closed their windows, switched atomically, dropped if unused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.connectors.sql.table_versions import Versions, shape_of, versioned
from strandline.errors import InvalidStep, SinkError, StateError
from strandline.kernel.watermarks import FOREVER, Progress
from strandline.plan.endpoints import Delivery
from strandline.plan.nodes import Write, outputs_of
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry
from tests.contracts.sinks import pane, panes
from tests.contracts.stores import DuckDbStore, PostgresStore, SqliteStore, Store
from tests.plan.endpoints import scores

pytest_plugins = ["strandline.testing.services"]

STORES: dict[str, Callable[[Path, pytest.FixtureRequest], Store]] = {
    "sqlite": lambda place, _: SqliteStore(place / "totals.db"),
    "duckdb": lambda place, _: DuckDbStore(place / "totals.duckdb"),
    "postgres": lambda _, request: PostgresStore(request.getfixturevalue("postgres").address),
}
KINDS = [
    pytest.param(name, mode, marks=[pytest.mark.services] if name == "postgres" else [])
    for name, mode in (("sqlite", "append"), ("sqlite", "upsert"), ("duckdb", "upsert"), ("postgres", "append"))
]


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    new_store = STORES[request.param](tmp_path, request)
    yield new_store
    if isinstance(new_store, PostgresStore):
        new_store.close()


def written(sink: Any, **more: Any) -> Write:
    keyed = scores().event_time("at", sl.bounded(seconds=1)).key_by("team").window(sl.tumbling(seconds=10))
    (write,) = outputs_of(keyed.aggregate(total=sl.sum("score"), **more).write(sink).root)
    return write


def put(sink: Any, *rows: Any, watermark: int = FOREVER) -> None:
    """Deliver one batch of a job, with this watermark."""
    opened = sink.open(Deliver(0, sink, Delivery.EXACTLY_ONCE, ("team",)))
    output = replace(panes(*rows), progress=Progress(watermark, 9_000))
    opened.commit(output, LedgerEntry("mine", opened.claim("mine"), 0, "range"))
    opened.close()


def versions_of(sink: Any, **more: Any) -> Versions:
    return Versions(sink.database(), sink.table, shape_of(written(sink, **more), sink.table))


def current(store: Store) -> list[tuple[Any, ...]]:
    return sorted((row["team"], row["window_start"][:19], row["total"]) for row in store.read("totals_current"))


@pytest.mark.slow
@pytest.mark.parametrize(("store", "mode"), KINDS, indirect=["store"])
def test_a_new_version_is_compared_switched_to_and_the_old_one_dropped(store: Store, mode: str) -> None:
    live: Any = store.sink(mode=mode)
    versions = versions_of(live)
    with pytest.raises(SinkError, match="the table 'totals' does not exist yet"):
        versions.begin("totals_v2", None)
    versions.close()
    put(live, pane("red", 5), pane("red", 6, start=10_000), pane("blue", 1), pane("jade", 3, start=20_000))
    versions = versions_of(live)
    versions.begin("totals_v2", None)
    with pytest.raises(StateError, match="started from another time"):
        versions.begin("totals_v2", 5)
    with pytest.raises(StateError, match="no version 'totals_v2'"):
        versions.difference("totals_v2")
    versions.close()
    new = versioned(live, "totals_v2")
    # It has not come to the last window yet, which is therefore not compared.
    put(new, pane("red", 5), pane("red", 7, start=10_000), pane("amber", 2), watermark=19_999)
    versions = versions_of(live)
    found = versions.difference("totals_v2")
    assert (found.compared, found.only_live, found.only_new, found.changed, found.beyond) == (4, 1, 1, 1, 1)
    result = dict(found.examples)
    assert (result["changed"]["total"], result["changed"]["new_total"]) == (6, 7)
    assert result["only live"]["team"] == "blue"
    assert result["only new"]["team"] == "amber"
    with pytest.raises(StateError, match="readers of totals_current use"):
        versions.drop("totals")
    versions.switch("totals_v2")
    with pytest.raises(StateError, match="already"):
        versions.switch("totals_v2")
    assert [(name, seen) for name, _, seen in versions.all()] == [("totals", False), ("totals_v2", True)]
    versions.drop("totals")
    versions.close()
    assert [(team, total) for team, _, total in current(store)] == [("amber", 2), ("red", 5), ("red", 7)]
    assert store.read("totals") == []


@pytest.mark.slow
@pytest.mark.parametrize(("store", "mode"), KINDS, indirect=["store"])
def test_after_a_switch_windows_before_the_replays_start_stay_even_with_a_new_column(store: Store, mode: str) -> None:
    live: Any = store.sink(mode=mode)
    put(live, pane("red", 5), pane("red", 6, start=10_000), pane("red", 8, start=20_000))
    versions = versions_of(live, many=sl.count())
    versions.begin("v2", 10_000)
    versions.close()
    put(versioned(live, "v2"), *({**pane("red", 60 + at, start=at * 10_000), "many": at} for at in (0, 1, 2)))
    versions = versions_of(live, many=sl.count())
    found = versions.difference("v2")
    assert (found.compared, found.changed, found.beyond) == (2, 2, 0)
    versions.switch("v2")
    with pytest.raises(StateError, match="use the version 'totals'"):
        versions.drop("totals")  # what is before the time is still its
    versions.close()
    assert [total for *_, total in current(store)] == [5, 61, 62]
    assert sorted(str(row["many"]) for row in store.read("totals_current")) == ["1", "2", "None"]


def test_a_version_needs_a_name_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(InvalidStep, match="the live table"):
        versioned(sl.sqlite(tmp_path / "a.db", table="totals"), "totals")
