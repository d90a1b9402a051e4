"""Contract of schema registries: the parts of the Confluent REST API that Strandline uses."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from strandline.errors import SchemaNotFound, SchemaRefused
from strandline.formats.compatibility import check
from strandline.formats.registry.client import Client, Registry
from strandline.formats.registry.subjects import Kind, Level, Reference, Schema
from strandline.services.registry_api import Api
from strandline.services.registry_server import Server
from strandline.services.registry_store import Store
from tests.formats.registries import judged, serving
from tests.formats.test_compatibility import CASES


def record(*fields: object) -> Schema:
    return Schema(Kind.AVRO, json.dumps({"type": "record", "name": "Score", "fields": fields}))


TEAM = {"name": "team", "type": "string"}
SCORE = {"name": "score", "type": "long", "default": 0}
FIRST, SECOND = record(TEAM), record(TEAM, SCORE)


@contextmanager
def a_fake(folder: Path) -> Iterator[str]:
    with serving() as started:
        started.judge = judged
        yield started.url


@contextmanager
def our_own(folder: Path) -> Iterator[str]:
    """The registry of `strandline up registry`, in this process."""
    store = Store(folder / "registry.sqlite")
    with Server(0, Api(store, check)) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
    store.close()


@pytest.fixture(params=[a_fake, our_own])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    with request.param(tmp_path) as url:
        yield Client(Registry(url))


def test_a_schema_is_found_by_id_by_version_and_as_the_latest(client: Client) -> None:
    number = client.register("scores-value", FIRST)
    assert json.loads(client.schema(number).text) == json.loads(FIRST.text)
    found = client.version("scores-value", 1)
    assert (found.subject, found.version, found.id) == ("scores-value", 1, number)
    assert client.latest("scores-value") == found


def test_versions_count_up_and_a_known_schema_is_not_a_new_one(client: Client) -> None:
    first = client.register("scores-value", FIRST)
    second = client.register("scores-value", SECOND)
    assert client.register("scores-value", FIRST) == first != second
    assert client.versions("scores-value") == [1, 2]
    assert client.latest("scores-value").id == second


def test_the_same_schema_under_two_subjects_has_one_id(client: Client) -> None:
    assert client.register("a-value", FIRST) == client.register("b-value", FIRST)
    assert client.subjects() == ["a-value", "b-value"]


def test_a_schema_is_found_by_its_text(client: Client) -> None:
    client.register("scores-value", FIRST)
    client.register("scores-value", SECOND)
    assert client.lookup("scores-value", SECOND).version == 2


def test_missing_schemas_and_subjects_are_reported(client: Client) -> None:
    client.register("scores-value", FIRST)
    for question in (
        lambda: client.schema(999_999),
        lambda: client.versions("nothing-value"),
        lambda: client.latest("nothing-value"),
        lambda: client.version("scores-value", 99),
        lambda: client.lookup("scores-value", SECOND),
    ):
        with pytest.raises(SchemaNotFound):
            question()


def test_a_level_is_the_subjects_own_or_the_global_one(client: Client) -> None:
    client.register("scores-value", FIRST)
    assert client.level("scores-value") is client.level() is Level.BACKWARD
    client.set_level(Level.FULL, "scores-value")
    assert client.level("scores-value") is Level.FULL
    client.set_level(Level.NONE)
    assert client.level() is Level.NONE
    assert client.level("scores-value") is Level.FULL


def test_every_kind_keeps_its_kind_and_its_references(client: Client) -> None:
    client.register("money", Schema(Kind.PROTOBUF, 'syntax = "proto3"; message Money { int64 cents = 1; }'))
    order = Schema(
        Kind.PROTOBUF,
        'syntax = "proto3"; import "money.proto"; message Order { Money price = 1; }',
        (Reference("money.proto", "money", 1),),
    )
    found = client.schema(client.register("order", order))
    assert (found.kind, found.references) == (Kind.PROTOBUF, order.references)
    text = client.schema(client.register("plain", Schema(Kind.JSON, '{"type": "object"}')))
    assert text.kind is Kind.JSON


def test_an_incompatible_schema_is_refused_and_a_compatible_one_accepted(client: Client) -> None:
    client.register("scores-value", FIRST)
    with pytest.raises(SchemaRefused):
        client.register("scores-value", record({"name": "team", "type": "long"}))
    assert client.versions("scores-value") == [1]
    client.register("scores-value", SECOND)
    client.set_level(Level.NONE, "scores-value")
    client.register("scores-value", record({"name": "team", "type": "long"}))
    assert client.versions("scores-value") == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("level", [Level.BACKWARD, Level.FORWARD, Level.FULL])
def test_its_compatibility_verdicts_agree_with_ours(client: Client, level: Level) -> None:
    client.set_level(level)
    for place, (kind, _, old, new, backward, forward) in enumerate(CASES):
        subject = f"case-{place}"
        client.register(subject, Schema(kind, old))
        expected = (backward or not level.reads_older) and (forward or not level.is_read_by_older)
        assert client.verdict(subject, Schema(kind, new)) is expected, (place, old, new)
