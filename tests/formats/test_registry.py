"""The registry client: requests, caching, retries, and redirects."""

import base64
import pickle
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

import strandline as sl
from strandline.errors import InvalidStep, RegistryDown, RegistryError, SchemaNotFound, SchemaRefused, SetupError
from strandline.formats import http
from strandline.formats.registry.client import Client, Registry
from strandline.formats.registry.subjects import Kind, Level, Naming, Reference, Schema
from strandline.formats.secrets import Secret
from strandline.model.elements import Duration
from strandline.plan.nodes import to_plain
from tests.formats.registries import FakeRegistry, reply, serving

LONG = Schema(Kind.AVRO, '"long"')


def status(code: int, body: bytes = b"{}", **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: reply(handler, code, body, **headers)


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.close()


def test_a_schema_is_requested_once_and_cached_for_ever(fake: FakeRegistry) -> None:
    number = fake.add("scores-value", '"long"')
    client = fake.client()
    assert [client.schema(number) for _ in range(3)] == [LONG] * 3
    assert [path for _, path, _ in fake.asked] == [f"/schemas/ids/{number}"]


def test_the_latest_version_is_cached_for_a_while(fake: FakeRegistry) -> None:
    now = [0.0]
    fake.add("scores-value", '"int"')
    client = Client(Registry(fake.url, fresh=Duration(60_000)), clock=lambda: now[0])
    assert client.latest("scores-value").version == 1
    fake.add("scores-value", '"long"')
    assert client.latest("scores-value").version == 1
    now[0] = 61.0
    assert client.latest("scores-value").version == 2


def test_a_missing_schema_is_requested_again_after_a_while(fake: FakeRegistry) -> None:
    now = [0.0]
    client = Client(Registry(fake.url, fresh=Duration(60_000)), clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises(SchemaNotFound):
            client.schema(1)
    assert len(fake.asked) == 1
    fake.add("scores-value", '"long"')
    now[0] = 61.0
    assert client.schema(1) == LONG


def test_faults_are_retried_with_growing_pauses(fake: FakeRegistry) -> None:
    number = fake.add("scores-value", '"long"')
    fake.faults = [status(500), hang_up, status(503, b"<html>"), status(429)]
    assert fake.client(attempts=5).schema(number) == LONG
    assert fake.pauses == [0.2, 0.4, 0.8, 1.6]


def test_a_retry_after_header_is_respected_within_limits(fake: FakeRegistry) -> None:
    number = fake.add("scores-value", '"long"')
    fake.faults = [status(429, Retry_After="3"), status(503, Retry_After="86400")]
    assert fake.client().schema(number) == LONG
    assert fake.pauses == [3.0, 5.0]


def test_a_registry_that_stays_down_is_an_error_and_nothing_is_skipped(fake: FakeRegistry) -> None:
    fake.faults = [status(500)] * 100
    with pytest.raises(RegistryDown, match="does not respond") as down:
        fake.client().schema(1)
    assert len(fake.asked) == 4
    assert sum(fake.pauses) < 2, "a batch that waits for it must say so within five seconds"
    assert "status 500" in down.value.detail
    assert isinstance(down.value, sl.RunError)


def test_the_number_of_attempts_is_configurable(fake: FakeRegistry) -> None:
    fake.faults = [status(500)] * 100
    with pytest.raises(RegistryDown, match="tried 2 times"):
        fake.client(attempts=2).schema(1)
    assert len(fake.asked) == 2
    with pytest.raises(sl.PlanError, match="attempts is 0"):
        fake.client(attempts=0)


def test_a_registry_at_another_address_is_the_same_to_a_checkpoint() -> None:
    first, second = (sl.avro("team string", registry=sl.registry(f"http://{host}:8081")) for host in ("a", "b"))
    assert first != second
    assert to_plain(first) == to_plain(second)


def test_an_address_without_a_server_counts_as_a_registry_that_is_down() -> None:
    with serving() as gone:
        pass
    with pytest.raises(RegistryDown, match="ConnectionRefused"):
        gone.client().subjects()


@pytest.mark.slow
def test_a_slow_registry_times_out_even_if_it_sends_single_bytes(fake: FakeRegistry) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        try:
            for _ in range(100):
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.02)
        except OSError:
            pass

    fake.faults = [drip] * 6
    with pytest.raises(RegistryDown, match="no answer in time"):
        fake.client(timeout=Duration(100)).subjects()


def test_an_endless_answer_is_refused(fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LARGEST", 1000)
    fake.faults = [status(200, b" " * 2000)]
    with pytest.raises(RegistryError, match="more than 1000 bytes"):
        fake.client().subjects()


def test_a_redirect_to_another_host_is_refused_and_no_secret_goes_there(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_TEST_TOKEN", "hunter2")
    with serving() as other:
        fake.faults = [status(302, Location=f"{other.url}/subjects")]
        with pytest.raises(RegistryError, match="a redirect to http://127.0.0.1") as refused:
            fake.client(token=Secret("env:STRANDLINE_TEST_TOKEN")).subjects()
        assert other.asked == []
    assert "hunter2" not in str(refused.value)


def test_a_redirect_within_the_host_is_followed_but_not_in_circles(fake: FakeRegistry) -> None:
    fake.add("scores-value", '"long"')
    fake.faults = [status(301, Location="/subjects")]
    assert fake.client().subjects() == ["scores-value"]
    fake.faults = [status(301, Location="/subjects")] * 5
    with pytest.raises(RegistryError, match="redirects without an end"):
        fake.client().subjects()


@pytest.mark.parametrize("body", [b"<html>welcome</html>", b"", b"[" * 100_000, b"\xff"])
def test_an_answer_that_is_not_json_is_refused(fake: FakeRegistry, body: bytes) -> None:
    fake.faults = [status(200, body)]
    with pytest.raises(RegistryError, match="is not JSON"):
        fake.client().subjects()


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"schema": 5, "schemaType": "THRIFT"}', b'{"schema": "x", "references": [1]}', b"5"]
)
def test_an_answer_with_an_unexpected_structure_is_refused(fake: FakeRegistry, body: bytes) -> None:
    fake.faults = [status(200, body)]
    with pytest.raises(RegistryError, match="an unexpected structure"):
        fake.client().schema(1)


def test_a_404_of_another_server_does_not_count_as_an_unknown_schema(fake: FakeRegistry) -> None:
    """A wrong address would otherwise turn a whole stream into dead letters."""
    for body in (b"not here", b"{}", b'{"error_code": 404}'):
        fake.faults = [status(404, body)]
        with pytest.raises(RegistryError, match="cannot answer") as raised:
            fake.client().schema(1)
        assert not isinstance(raised.value, SchemaNotFound)


def test_credentials_are_sent_and_never_shown(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STRANDLINE_TEST_USER", "ann")
    (tmp_path / "password").write_text("hunter2\n")
    ours = sl.registry(fake.url, user="env:STRANDLINE_TEST_USER", password=f"file:{tmp_path}/password")
    Client(ours).subjects()
    sent = fake.asked[-1][2]["Authorization"]
    assert base64.b64decode(sent.removeprefix("Basic ")) == b"ann:hunter2"
    fake.faults = [status(401, b'{"error_code": 40101, "message": "no"}')]
    with pytest.raises(RegistryError, match="rejects the credentials") as refused:
        Client(ours).subjects()
    for result in (repr(ours), str(refused.value), repr(Client(ours)), repr(pickle.dumps(ours))):
        assert "hunter2" not in result


def test_a_token_is_sent_as_a_bearer_token(fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_TEST_TOKEN", "abc")
    Client(sl.registry(fake.url, token="env:STRANDLINE_TEST_TOKEN")).subjects()
    assert fake.asked[-1][2]["Authorization"] == "Bearer abc"


def test_a_missing_secret_is_an_error_before_any_request(fake: FakeRegistry) -> None:
    with pytest.raises(SetupError, match="env:STRANDLINE_NOT_SET"):
        Client(sl.registry(fake.url, token="env:STRANDLINE_NOT_SET")).subjects()
    assert fake.asked == []


@pytest.mark.parametrize(
    ("url", "secrets", "reason"),
    [
        ("localhost:8081", {}, "not an HTTP address"),
        ("ftp://localhost", {}, "not an HTTP address"),
        ("http://", {}, "not an HTTP address"),
        ("http://ann:hunter2@localhost", {}, "contains a password"),
        ("http://localhost", {"user": "env:A"}, "a user with a password, or a token"),
        ("http://localhost", {"user": "env:A", "password": "env:B", "token": "env:C"}, "a user with a password"),
        ("http://registry.example", {"token": "env:A"}, "unencrypted"),
    ],
)
def test_an_invalid_address_is_refused(url: str, secrets: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidStep, match=reason) as refused:
        sl.registry(url, **secrets)
    assert "hunter2" not in str(refused.value)


def test_secrets_are_sent_over_tls_only() -> None:
    for url in ("https://registry.example", "http://127.0.0.1:8081", "http://[::1]:8081", "http://localhost"):
        sl.registry(url, token="env:A")


def test_a_process_has_one_client_per_registry(fake: FakeRegistry) -> None:
    assert sl.registry(fake.url).client() is sl.registry(fake.url).client()


def test_referenced_schemas_are_collected_innermost_first(fake: FakeRegistry) -> None:
    fake.add("money", "money text")
    fake.add("item", "item text", references=[{"name": "shop.Money", "subject": "money", "version": 1}])
    uses = (Reference("shop.Item", "item", 1), Reference("shop.Money", "money", 1))
    found = fake.client().used_by(Schema(Kind.AVRO, "order text", uses))
    assert list(found.items()) == [("shop.Money", "money text"), ("shop.Item", "item text")]


def test_circular_schema_references_are_refused(fake: FakeRegistry) -> None:
    fake.add("a", "a", references=[{"name": "A", "subject": "a", "version": 1}])
    with pytest.raises(RegistryError, match="more than 16 deep"):
        fake.client().used_by(fake.client().version("a", 1).schema)


def test_an_incompatible_schema_is_refused(fake: FakeRegistry) -> None:
    fake.add("scores-value", '"long"')
    fake.judge = lambda new, old, level: False
    with pytest.raises(SchemaRefused, match="rejects this schema"):
        fake.client().register("scores-value", Schema(Kind.AVRO, '"string"'))
    assert not fake.client().verdict("scores-value", Schema(Kind.AVRO, '"string"'))


def test_subject_names_are_escaped_in_urls(fake: FakeRegistry) -> None:
    client = fake.client()
    client.register("a/b c?d", LONG)
    assert client.subjects() == ["a/b c?d"]
    assert client.latest("a/b c?d").schema == LONG


def test_subjects_are_named_by_topic_record_or_both() -> None:
    assert Naming.TOPIC.subject("scores") == "scores-value"
    assert Naming.TOPIC.subject("scores", part="key") == "scores-key"
    assert Naming.RECORD.subject("scores", "games.Score") == "games.Score"
    assert Naming.TOPIC_RECORD.subject("scores", "games.Score") == "scores-games.Score"


def test_levels_know_which_versions_they_check() -> None:
    assert [level for level in Level if level.reads_older and level.is_read_by_older] == [
        Level.FULL,
        Level.FULL_TRANSITIVE,
    ]
    assert [level.value for level in Level if level.is_transitive] == [
        "BACKWARD_TRANSITIVE",
        "FORWARD_TRANSITIVE",
        "FULL_TRANSITIVE",
    ]
