"""Provide real services for tests: Kafka, PostgreSQL, a schema registry, Valkey, each on a free port.

Load them in a test module or conftest with `pytest_plugins = ["strandline.testing.services"]`. A service starts when a
test first uses it and stops with the test run, even if that fails; on Linux it ends even if the run is killed. A test
may `kill()` a service and `start()` it again: same port, same data.
"""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from strandline.services.catalogue import service
from strandline.services.service import Service
from strandline.services.topics import DEFAULT_PARTITIONS, Topic, create_topics


@pytest.fixture(scope="session")
def services_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the services of this run keep their data and logs."""
    return tmp_path_factory.mktemp("services")


@pytest.fixture(scope="session")
def kafka(services_folder: Path) -> Iterator[Service]:
    """A Kafka broker; `kafka.address` holds the bootstrap servers."""
    yield from running("kafka", services_folder)


@pytest.fixture(scope="session")
def postgres(services_folder: Path) -> Iterator[Service]:
    """A PostgreSQL server; `postgres.address` is a connection string."""
    yield from running("postgres", services_folder)


@pytest.fixture(scope="session")
def registry(services_folder: Path) -> Iterator[Service]:
    """A schema registry; `registry.address` is its URL."""
    yield from running("registry", services_folder)


@pytest.fixture(scope="session")
def valkey(services_folder: Path) -> Iterator[Service]:
    """A Valkey server; `valkey.address` is its URL."""
    yield from running("valkey", services_folder)


@pytest.fixture(scope="session")
def new_topic(kafka: Service) -> Callable[..., str]:
    """Return a function that creates a unique topic: `new_topic(partitions=4)` returns its name."""
    numbers = count(1)

    def make(partitions: int = DEFAULT_PARTITIONS, **settings: str) -> str:
        written = {name.replace("_", "."): value for name, value in settings.items()}
        topic = Topic(f"test-{next(numbers)}", partitions, written)
        create_topics(kafka.address, topic)
        return topic.name

    return make


def running(name: str, home: Path) -> Iterator[Service]:
    """Start a service and stop it at the end, also after an error."""
    each = service(name, home, leashed=True)
    each.start()
    try:
        yield each
    finally:
        each.stop()
