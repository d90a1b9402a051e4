"""A target that does not exist is created where it was named, or refused: nothing temporary or default replaces it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.connectors.kafka.clients import admin_of, partitions
from strandline.connectors.kafka.security import Security
from strandline.errors import InvalidStep, SetupError, SinkError
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.services.service import Service
from tests.contracts.sinks import entry, pane, panes

pytest_plugins = ["strandline.testing.services"]

LOCAL = [sl.sqlite, sl.duckdb, sl.folder, sl.dead_files]
"""Constructors of targets on this machine."""


@pytest.mark.parametrize("target", LOCAL, ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    "path", ["", ":memory:", ":memory:shared", "file::memory:", "md:scores", "s3://lake/totals", "~/totals"]
)
def test_a_path_that_stands_for_another_place_is_refused(target: Callable[[str], Any], path: str) -> None:
    with pytest.raises(InvalidStep):
        target(path)


def test_a_delta_table_in_memory_is_refused() -> None:
    with pytest.raises(InvalidStep, match="gone when the process ends"):
        sl.delta("memory:///totals")


@pytest.mark.parametrize("name", ["strandline_staging", "Strandline_Ledger", "strandline_rows"])
def test_a_table_that_a_temporary_table_would_hide_is_refused(name: str) -> None:
    for target in (
        lambda: sl.sqlite("scores.db", table=name),
        lambda: sl.duckdb("scores.duckdb", table=name),
        lambda: sl.postgres(name, dsn="postgresql://me@localhost/scores"),
    ):
        with pytest.raises(InvalidStep, match="reserved"):
            target()


@pytest.mark.parametrize("kind", ["sqlite", "folder", pytest.param("delta", marks=pytest.mark.slow)])
def test_a_missing_folder_is_created_where_it_was_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is one of the working directory."""
    monkeypatch.chdir(tmp_path)
    targets: dict[str, Callable[[str], Any]] = {"sqlite": sl.sqlite, "folder": sl.folder, "delta": sl.delta}
    (tmp_path / "new").mkdir()  # SQLite makes one missing folder and no more
    definition = targets[kind]("new/deeper/totals")
    sink = definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))
    sink.commit(panes(pane("red", 5)), entry(sink, 0))
    sink.close()
    assert [each.name for each in (tmp_path / "new" / "deeper").iterdir() if each.name == "totals"] == ["totals"]


@pytest.mark.slow
def test_a_duckdb_table_that_is_gone_is_not_replaced_by_a_variable(tmp_path: Path) -> None:
    definition = sl.duckdb(tmp_path / "scores.duckdb", table="frame", mode="upsert", key=["team"])
    sink = definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))
    once = entry(sink, 0)
    sink.commit(panes(pane("red", 5)), once)
    sink._database.execute("DROP TABLE frame")
    with pytest.raises(SinkError, match="refused a batch"):
        sink.commit(panes(pane("red", 6, 1)), entry(sink, 1, epoch=once.epoch))
    sink.close()


@pytest.mark.services
def test_a_missing_topic_is_refused_and_not_created(kafka: Service) -> None:
    for target in (sl.kafka_topic("not there", servers=kafka.address),):
        with pytest.raises(SetupError, match="there is no topic not there"):
            target.open(Deliver(0, target, Delivery.EXACTLY_ONCE, ("team",)))
    with pytest.raises(SetupError, match="there is no topic not there"):
        sl.dead_topic("not there", servers=kafka.address).open_letters("mine")
    assert partitions(admin_of(kafka.address, Security()), "not there") == []


@pytest.mark.services
@pytest.mark.parametrize("number", ["99", "one", "1/2"])
def test_a_valkey_database_that_does_not_exist_is_refused(valkey: Service, number: str) -> None:
    address = valkey.address.rstrip("/0123456789") if valkey.address.count("/") > 2 else valkey.address

    def write() -> None:
        definition = sl.valkey(f"{address}/{number}", prefix="totals")
        definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",))).claim("mine")

    with pytest.raises((InvalidStep, SinkError)):
        write()
