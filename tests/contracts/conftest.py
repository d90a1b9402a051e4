"""Fixtures of the contract suites: every sink, empty."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.ports.sinks import OpenSink
from tests.contracts.sinks import opened
from tests.contracts.stores import (
    DeltaStore,
    DuckDbStore,
    FolderStore,
    KafkaStore,
    PostgresStore,
    SqliteStore,
    Store,
    ValkeyStore,
)

QUICK = ("sqlite", "jsonl")
EMBEDDED = ("duckdb", "parquet", "csv", "delta")
SERVED = ("postgres", "kafka", "valkey")


KINDS = [
    *QUICK,
    *(pytest.param(each, marks=pytest.mark.slow) for each in EMBEDDED),
    *(pytest.param(each, marks=pytest.mark.services) for each in SERVED),
]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each sink, empty."""
    match request.param:
        case "sqlite":
            yield SqliteStore(tmp_path / "some folder" / "scores.db")
        case "duckdb":
            yield DuckDbStore(tmp_path / "some folder" / "scores.duckdb")
        case "parquet" | "jsonl" | "csv":
            yield FolderStore(tmp_path / "some folder", request.param)
        case "delta":
            pytest.importorskip("deltalake", reason='it needs "strandline[delta]"')
            yield DeltaStore(tmp_path / "some folder")
        case "postgres":
            new_store = PostgresStore(request.getfixturevalue("postgres").address)
            yield new_store
            new_store.close()
        case "kafka":
            yield KafkaStore(request.getfixturevalue("kafka").address)
        case "valkey":
            keys = ValkeyStore(request.getfixturevalue("valkey").address)
            yield keys
            keys.close()


@pytest.fixture(autouse=True)
def _only_what_it_can(request: pytest.FixtureRequest) -> None:
    """Run a test marked `needs(...)` for the sinks that support it."""
    for mark in request.node.iter_markers("needs"):
        missing = set(mark.args) - request.getfixturevalue("store").can
        if missing:
            pytest.skip(f"it does not {', '.join(missing)}")


@pytest.fixture
def sink(store: Store) -> Iterator[OpenSink]:
    found = opened(store)
    yield found
    found.close()
