"""The registry: its answers, and the whole server with our own client and another one."""

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaRegistryClient

from strandline.errors import InvalidSchema, SchemaRefused
from strandline.formats.registry.client import Client, Registry
from strandline.formats.registry.subjects import Kind, Level, Reference, Schema
from strandline.services.registry_api import Api
from strandline.services.registry_server import LARGEST_BODY
from strandline.services.registry_store import Store
from strandline.services.service import Service

INT = json.dumps({"type": "record", "name": "Score", "fields": [{"name": "n", "type": "int"}]})
LONG = INT.replace("int", "long")
TEXT = INT.replace("int", "string")


def judge(
    new: str, older: Sequence[str], level: Level, kind: Kind = Kind.AVRO, uses: Mapping[str, str] | None = None
) -> list[str]:
    """Only string schemas are compatible with each other; a schema with `broken` in it is invalid."""
    if "broken" in new:
        raise InvalidSchema("it is broken")
    asked = older if level.is_transitive else older[-1:]
    return ["a string is no number" for old in asked if ("string" in old) is not ("string" in new)]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    store = Store(tmp_path / "registry.sqlite")
    yield Api(store, judge)
    store.close()


def ask(api: Api, method: str, target: str, body: object = None) -> Any:
    status, response = api.answer(method, target, b"" if body is None else json.dumps(body).encode())
    return response if status == 200 else (status, response["error_code"])


def register(api: Api, subject: str, text: str, **more: object) -> Any:
    return ask(api, "POST", f"/subjects/{subject}/versions", {"schema": text, **more})


def test_a_schema_has_one_id_wherever_it_is_used(api: Api) -> None:
    assert register(api, "a", INT) == {"id": 1}
    assert register(api, "b", INT) == {"id": 1}
    assert register(api, "a", LONG) == {"id": 2}
    assert register(api, "a", INT) == {"id": 1}
    assert ask(api, "GET", "/subjects") == ["a", "b"]
    assert ask(api, "GET", "/subjects/a/versions") == [1, 2]
    assert ask(api, "GET", "/schemas/ids/1/subjects") == ["a", "b"]
    assert ask(api, "GET", "/schemas/ids/2/versions") == [{"subject": "a", "version": 2}]


def test_whitespace_does_not_make_a_new_schema(api: Api) -> None:
    assert register(api, "a", INT) == register(api, "a", json.dumps(json.loads(INT), indent=4))


def test_a_version_is_returned_with_its_id_and_text(api: Api) -> None:
    register(api, "a", INT)
    register(api, "a", LONG)
    answer = ask(api, "GET", "/subjects/a/versions/latest")
    assert (answer["subject"], answer["version"], answer["id"]) == ("a", 2, 2)
    assert json.loads(answer["schema"]) == json.loads(LONG)
    assert "schemaType" not in answer
    assert ask(api, "GET", "/subjects/a/versions/1/schema") == json.loads(INT)
    assert ask(api, "POST", "/subjects/a", {"schema": INT})["version"] == 1
    assert ask(api, "POST", "/subjects/a", {"schema": TEXT}) == (404, 40403)


def test_an_incompatible_schema_is_refused_unless_the_level_allows_it(api: Api) -> None:
    register(api, "a", INT)
    assert ask(api, "POST", "/compatibility/subjects/a/versions/latest", {"schema": TEXT}) == {"is_compatible": False}
    verbose = ask(api, "POST", "/compatibility/subjects/a/versions?verbose=true", {"schema": TEXT})
    assert verbose == {"is_compatible": False, "messages": ["a string is no number"]}
    assert register(api, "a", TEXT) == (409, 409)
    assert ask(api, "GET", "/subjects/a/versions") == [1]
    ask(api, "PUT", "/config/a", {"compatibility": "NONE"})
    assert register(api, "a", TEXT) == {"id": 2}
    ask(api, "PUT", "/config/a", {"compatibility": "FULL_TRANSITIVE"})
    assert register(api, "a", TEXT.replace("Score", "Other")) == (409, 409)


def test_a_schema_of_another_language_is_incompatible(api: Api) -> None:
    register(api, "a", INT)
    assert register(api, "a", '{"type": "object"}', schemaType="JSON") == (409, 409)


def test_a_level_is_the_subjects_own_or_the_registrys_default(api: Api) -> None:
    assert ask(api, "GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert ask(api, "GET", "/config/a") == (404, 40408)
    assert ask(api, "GET", "/config/a?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    assert ask(api, "PUT", "/config", {"compatibility": "FULL"}) == {"compatibility": "FULL"}
    ask(api, "PUT", "/config/a", {"compatibility": "NONE"})
    assert ask(api, "GET", "/config/a") == {"compatibilityLevel": "NONE"}
    assert ask(api, "DELETE", "/config/a") == {"compatibilityLevel": "NONE"}
    assert ask(api, "GET", "/config/a") == (404, 40408)
    assert ask(api, "PUT", "/config", {"compatibility": "SOMEHOW"}) == (422, 42203)


def test_a_deleted_version_is_hidden_first_and_its_number_is_not_used_again(api: Api) -> None:
    register(api, "a", INT)
    register(api, "a", LONG)
    assert ask(api, "DELETE", "/subjects/a/versions/2?permanent=true") == (404, 40407)
    assert ask(api, "DELETE", "/subjects/a/versions/2") == 2
    assert ask(api, "GET", "/subjects/a/versions") == [1]
    assert ask(api, "GET", "/subjects/a/versions?deleted=true") == [1, 2]
    assert register(api, "a", LONG) == {"id": 2}
    assert ask(api, "GET", "/subjects/a/versions") == [1, 3]
    assert json.loads(ask(api, "GET", "/schemas/ids/2")["schema"]) == json.loads(LONG)


def test_a_subject_is_deleted_permanently_in_two_steps(api: Api) -> None:
    register(api, "a", INT)
    assert ask(api, "DELETE", "/subjects/a?permanent=true") == (404, 40405)
    assert ask(api, "DELETE", "/subjects/a") == [1]
    assert ask(api, "GET", "/subjects") == []
    assert ask(api, "GET", "/subjects?deleted=true") == ["a"]
    assert ask(api, "DELETE", "/subjects/a?permanent=true") == [1]
    assert ask(api, "GET", "/subjects?deleted=true") == []


def test_a_referenced_schema_cannot_be_deleted(api: Api) -> None:
    register(api, "inner", INT)
    uses = [{"name": "Score", "subject": "inner", "version": 1}]
    assert register(api, "outer", '["null", "Score"]', references=uses) == {"id": 2}
    assert ask(api, "GET", "/subjects/outer/versions/1")["references"] == uses
    assert ask(api, "GET", "/subjects/inner/versions/1/referencedby") == [2]
    assert ask(api, "DELETE", "/subjects/inner") == (422, 42206)
    lost = [{"name": "Score", "subject": "nowhere", "version": 1}]
    assert register(api, "outer", '["null", "Score"]', references=lost) == (422, 42201)


@pytest.mark.parametrize(
    "body",
    [None, [], {}, {"schema": 1}, {"schema": "{"}, {"schema": '"broken"'}, {"schema": INT, "schemaType": "XML"},
     {"schema": INT, "references": [1]}, {"schema": INT, "references": 7}],
)  # fmt: skip
def test_an_invalid_schema_is_refused(api: Api, body: object) -> None:
    assert ask(api, "POST", "/subjects/a/versions", body) == (422, 42201)
    assert ask(api, "GET", "/subjects") == []


@pytest.mark.parametrize(
    ("method", "target", "answer"),
    [
        ("GET", "/subjects/none/versions", (404, 40401)),
        ("GET", "/subjects/a/versions/9", (404, 40402)),
        ("GET", "/subjects/a/versions/0", (422, 42202)),
        ("GET", "/subjects/a/versions/x", (422, 42202)),
        ("GET", "/schemas/ids/9", (404, 40403)),
        ("GET", "/nowhere", (404, 404)),
        ("PUT", "/subjects", (404, 404)),
    ],
)
def test_missing_things_have_their_error_codes(api: Api, method: str, target: str, answer: object) -> None:
    register(api, "a", INT)
    assert ask(api, method, target) == answer


def test_a_body_that_is_not_json_is_refused(api: Api) -> None:
    assert api.answer("POST", "/subjects/a/versions", b"{")[0] == 400
    assert api.answer("POST", "/subjects/a/versions", b"[" * 100_000)[0] == 400


def test_a_subject_may_contain_any_character(api: Api) -> None:
    register(api, "a%2Fb%20%C3%A9", INT)
    assert ask(api, "GET", "/subjects") == ["a/b é"]
    assert ask(api, "GET", "/subjects/a%2Fb%20%C3%A9/versions") == [1]


def test_our_client_works_with_our_server(registry: Service) -> None:
    client = Client(Registry(registry.address))
    client.set_level(Level.NONE, "ours")
    number = client.register("ours", Schema(Kind.AVRO, INT))
    assert json.loads(client.schema(number).text) == json.loads(INT)
    assert client.register("ours", Schema(Kind.AVRO, LONG)) != number
    assert client.versions("ours") == [1, 2]
    assert client.level("ours") is Level.NONE
    assert client.lookup("ours", Schema(Kind.AVRO, INT)).version == 1
    use = Reference("Score", "ours", 1)
    outer = client.register("ours-outer", Schema(Kind.AVRO, '["null","Score"]', (use,)))
    assert client.schema(outer).references == (use,)


def test_a_breaking_change_is_refused_and_a_compatible_one_accepted(registry: Service) -> None:
    client = Client(Registry(registry.address))
    client.register("judged", Schema(Kind.AVRO, INT))
    assert not client.verdict("judged", Schema(Kind.AVRO, TEXT))
    with pytest.raises(SchemaRefused, match="409"):
        client.register("judged", Schema(Kind.AVRO, TEXT))
    assert client.verdict("judged", Schema(Kind.AVRO, LONG))
    client.register("judged", Schema(Kind.AVRO, LONG))
    assert client.versions("judged") == [1, 2]


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Kind.AVRO, '{"type": "recrod"}'), (Kind.JSON, "7"), (Kind.PROTOBUF, "no message at all {")],
)
def test_an_unreadable_schema_is_not_registered(registry: Service, kind: Kind, text: str) -> None:
    with pytest.raises(SchemaRefused, match="42201"):
        Client(Registry(registry.address)).register("unread", Schema(kind, text))


def test_confluents_client_works_with_our_server(registry: Service) -> None:
    with SchemaRegistryClient({"url": registry.address}) as client:
        client.set_compatibility("theirs", "NONE")
        number = client.register_schema("theirs", TheirSchema(INT, "AVRO"))
        assert client.register_schema("theirs", TheirSchema(LONG, "AVRO")) > number
        assert client.get_latest_version("theirs").version == 2
        assert client.lookup_schema("theirs", TheirSchema(INT, "AVRO")).schema_id == number
        assert "theirs" in client.get_subjects()
        assert client.get_compatibility("theirs") == "NONE"
        assert client.delete_subject("theirs") == [1, 2]
        assert client.delete_subject("theirs", permanent=True) == [1, 2]
        assert "theirs" not in client.get_subjects()


@pytest.mark.slow
def test_registered_schemas_survive_a_kill(registry: Service) -> None:
    client = Client(Registry(registry.address))
    number = client.register("kept", Schema(Kind.AVRO, INT))
    assert registry.kill()
    assert registry.start()
    assert Client(Registry(registry.address)).register("kept", Schema(Kind.AVRO, INT)) == number


@pytest.mark.parametrize(
    "headers",
    [{"Host": "example.org"}, {"Origin": "http://example.org"}, {"Origin": "null"}, {"Host": ""}],
    ids=str,
)
def test_a_request_of_another_origin_is_refused(registry: Service, headers: dict[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", registry.port, timeout=5)
    connection.request("GET", "/subjects", headers=headers)
    assert connection.getresponse().status == 403
    connection.close()


def test_a_body_without_a_length_is_refused(registry: Service) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", registry.port, timeout=5)
    connection.request("POST", "/subjects/a", headers={"Content-Length": str(LARGEST_BODY + 1)})
    assert connection.getresponse().status == 413
    connection.close()
