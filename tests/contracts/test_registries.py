"""What every schema registry must do: the parts of the Confluent REST API that Strandline relies on."""

import json
from collections.abc import Iterator

import pytest

from strandline.errors import SchemaNotFound
from strandline.formats.registry import Client, Registry
from strandline.formats.subjects import Kind, Level, Reference, Schema
from tests.formats.registries import serving


def record(*fields: object) -> Schema:
    return Schema(Kind.AVRO, json.dumps({"type": "record", "name": "Score", "fields": fields}))


TEAM = {"name": "team", "type": "string"}
SCORE = {"name": "score", "type": "long", "default": 0}
FIRST, SECOND = record(TEAM), record(TEAM, SCORE)


@pytest.fixture
def client() -> Iterator[Client]:
    with serving() as started:
        yield Client(Registry(started.url))


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


def test_what_is_not_there_is_said_to_be_missing(client: Client) -> None:
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


def test_a_level_is_the_subjects_own_or_everyones(client: Client) -> None:
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
