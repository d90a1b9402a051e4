"""What one request or many connections can cost a registry is bounded, whatever they hold."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidSchema
from strandline.formats.avro.schema import parse_avro
from strandline.formats.compatibility import check
from strandline.formats.registry.subjects import Kind, Level
from strandline.services import registry_server
from strandline.services.registry_api import Api
from strandline.services.registry_server import Handler, Server
from strandline.services.registry_store import Store

MANY = 20_000
FIELDS = [{"name": f"f{n}", "type": "int"} for n in range(MANY)]
LARGE = {
    "fields": (Kind.AVRO, {"type": "record", "name": "r", "fields": FIELDS}),
    "symbols": (Kind.AVRO, {"type": "enum", "name": "e", "symbols": [f"s{n}" for n in range(MANY)]}),
    "properties": (Kind.JSON, {"type": "object", "properties": {f"f{n}": {"type": "integer"} for n in range(MANY)}}),
    "values": (Kind.JSON, {"enum": [f"s{n}" for n in range(MANY)]}),
}  # fmt: skip


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    store = Store(tmp_path / "registry.sqlite")
    yield Api(store, check)
    store.close()


def register(api: Api, kind: Kind, schema: Any, subject: str = "s") -> tuple[int, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = json.dumps({"schema": text, "schemaType": kind.value}).encode()
    return api.answer("POST", f"/subjects/{subject}/versions", body)


@pytest.mark.parametrize("name", LARGE)
def test_a_large_schema_takes_time_in_proportion(name: str, api: Api) -> None:
    kind, schema = LARGE[name]
    before = time.process_time()
    assert register(api, kind, schema)[0] == 200
    assert time.process_time() - before < 10  # it took 20 s and more


def doubling(levels: int) -> dict[str, Any]:
    """Records that each name the one before twice: written out, they double with every level."""
    kind: Any = {"type": "record", "name": "A0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, levels):
        fields = [{"name": "x", "type": kind}, {"name": "y", "type": f"A{level - 1}"}]
        kind = {"type": "record", "name": f"A{level}", "fields": fields}
    return kind  # type: ignore[no-any-return]


def entangled(many: int) -> list[Any]:
    """Records that all name all others."""
    fields = [{"name": f"f{n}", "type": ["null", f"R{n}"]} for n in range(many)]
    nested: Any = None
    for n in reversed(range(many)):
        own = [*([] if nested is None else [{"name": "in", "type": nested}])]
        known = [each for each in fields if int(str(each["name"])[1:]) <= n]
        nested = {"type": "record", "name": f"R{n}", "fields": [*own, *known]}
    return [nested]


def test_a_schema_that_would_write_out_to_more_than_memory_is_refused() -> None:
    parse_avro(json.dumps(doubling(14)))
    with pytest.raises(InvalidSchema, match="too large when its named types are written out"):
        parse_avro(json.dumps(doubling(30)))


def test_records_that_name_each_other_are_compared_once() -> None:
    one = json.dumps(entangled(30)[0])
    before = time.process_time()
    assert check(one, [one], Level.FULL) == []
    assert time.process_time() - before < 5


def test_a_difference_deep_inside_shared_records_is_still_found() -> None:
    old, new = json.dumps(doubling(6)), json.dumps(doubling(6)).replace('"int"', '"string"')
    found = check(new, [old], Level.BACKWARD)
    assert found
    assert all("int was written, string is read" in each for each in found)


@pytest.mark.parametrize("schema", [
    {"patternProperties": {"(a+)+$": {"type": "string"}}, "properties": {"a" * 40 + "!": {}}},
    {"properties": []}, {"type": 7}, {"minLength": "x"}, {"required": 3}, {"multipleOf": 0}, {"enum": 3}, {"allOf": 1},
    {"$ref": "#"}, {"anyOf": [{"anyOf": [{"$ref": "#"}] * 9}] * 9}, {"allOf": [{"$ref": "#"}] * 9}, {"items": 5},
    {"patternProperties": {"(?=x)y": {}}, "properties": {"a": {}}}, {"properties": {"a": 3}}, {"not": {"$ref": "#"}},
], ids=range(15))  # fmt: skip
def test_a_hostile_json_schema_is_answered_within_bounds(schema: Any, api: Api) -> None:
    before = time.process_time()
    status, answer = register(api, Kind.JSON, schema)
    assert status in (200, 409, 422), answer
    assert register(api, Kind.JSON, {**schema, "title": "changed"})[0] in (200, 409, 422)
    assert time.process_time() - before < 20


@pytest.mark.parametrize("target", [
    f"/schemas/ids/{2**63}", f"/schemas/ids/{10**30}", f"/schemas/ids/{'9' * 6_000}", "/schemas/ids/²",
    f"/subjects/a/versions/{10**30}", "/subjects/a/versions/²", f"/subjects/a/versions/{'9' * 6_000}", "//[", "/%ff",
])  # fmt: skip
def test_a_number_of_any_size_is_answered(target: str, api: Api) -> None:
    register(api, Kind.AVRO, '"int"', "a")
    status, answer = api.answer("GET", target, b"")
    assert 400 <= status < 500, answer


@pytest.mark.parametrize("body", [
    {"schema": "\ud800"}, {"schema": '"int"', "references": [{"name": "\ud800", "subject": "a", "version": 1}]},
    {"schema": '"int"', "references": [{"name": "a", "subject": "a", "version": 1e400}]},
    {"schema": '"int"', "references": 7}, {"schema": '"int"', "schemaType": [1]}, {"schema": 7}, [], "x", 7,
], ids=range(9))  # fmt: skip
def test_a_body_of_any_shape_is_answered(body: Any, api: Api) -> None:
    status, answer = api.answer("POST", "/subjects/a/versions", json.dumps(body).encode())
    assert status == 422, answer


def test_what_no_rule_foresees_is_an_answer_too(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api._store, "subjects", lambda **_: 1 / 0)
    assert api.answer("GET", "/subjects", b"")[0] == 500


@pytest.fixture
def server(api: Api) -> Iterator[Server]:
    made = Server(0, api)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def subjects(server: Server) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        connection.request("GET", "/subjects")
        return connection.getresponse().status
    finally:
        connection.close()


def test_idle_connections_do_not_shut_out_a_client(server: Server) -> None:
    idle = [
        socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(3 * registry_server.MOST_CONNECTIONS)
    ]
    try:
        assert [subjects(server) for _ in range(5)] == [200] * 5
        assert len(server._open) <= registry_server.MOST_CONNECTIONS
    finally:
        for each in idle:
            each.close()


def test_a_request_that_does_not_arrive_is_not_waited_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as slow:
        slow.sendall(b"POST /subjects/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert slow.recv(100) == b""
    assert subjects(server) == 200
