"""A schema registry for tests: the Confluent REST API over real HTTP on loopback, with faults on request."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from strandline.formats.compatibility import check
from strandline.formats.registry.client import Client, Registry
from strandline.formats.registry.subjects import Kind, Level

Said = tuple[int, Any]


@dataclass
class FakeRegistry:
    """The registry's content, the requests it got, and the faults to inject next."""

    url: str = ""
    schemas: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=lambda: {"": "BACKWARD"})
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    faults: list[Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=list)
    judge: Callable[[dict[str, Any], list[dict[str, Any]], str], bool] = lambda new, old, level: True  # takes all

    def client(self, **options: Any) -> Client:
        """A client that never sleeps, and records how long it would have."""
        return Client(Registry(self.url, **options), sleep=self.pauses.append)

    pauses: list[float] = field(default_factory=list)

    def add(self, subject: str, text: str, kind: str = "AVRO", references: Any = ()) -> int:
        content = self.register(subject, {"schema": text, "schemaType": kind, "references": list(references)})[1]
        return int(content["id"])

    def register(self, subject: str, body: dict[str, Any]) -> Said:
        schema = _plain(body)
        old = [self.schemas[number - 1] for number in self.subjects.get(subject, [])]
        if schema not in old and not self.judge(schema, old, self.levels.get(subject, self.levels[""])):
            return 409, {"error_code": 409, "message": "incompatible with an earlier schema"}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        if number not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(number)
        return 200, {"id": number}

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Said:
        for verb, shape, act in ROUTES:
            if verb == method and (found := re.fullmatch(shape, path)):
                return act(self, body, *(unquote(part) for part in found.groups()))
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


def judged(new: dict[str, Any], old: list[dict[str, Any]], level: str) -> bool:
    """The verdict of a real registry: our own compatibility check."""
    alike = [each["schema"] for each in old if each["schemaType"] == new["schemaType"]]
    return not check(new["schema"], alike, Level(level), Kind(new["schemaType"]))


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": body["schema"],
        "schemaType": body.get("schemaType", "AVRO"),
        "references": body.get("references") or [],
    }


def _by_id(fake: FakeRegistry, body: Any, number: str) -> Said:
    if not 0 < int(number) <= len(fake.schemas):
        return 404, {"error_code": 40403, "message": "Schema not found"}
    schema = fake.schemas[int(number) - 1]
    # As the real ones do: neither the kind of an Avro schema nor an empty list is said.
    return 200, {key: value for key, value in schema.items() if value and value != "AVRO"}


def _versions(fake: FakeRegistry, body: Any, subject: str) -> Said:
    if subject not in fake.subjects:
        return 404, {"error_code": 40401, "message": "Subject not found"}
    return 200, list(range(1, len(fake.subjects[subject]) + 1))


def _version(fake: FakeRegistry, body: Any, subject: str, version: str) -> Said:
    if subject not in fake.subjects:
        return 404, {"error_code": 40401, "message": "Subject not found"}
    numbers = fake.subjects[subject]
    place = len(numbers) if version == "latest" else int(version)
    if not 0 < place <= len(numbers):
        return 404, {"error_code": 40402, "message": "Version not found"}
    number = numbers[place - 1]
    return 200, {"subject": subject, "version": place, "id": number, **fake.schemas[number - 1]}


def _lookup(fake: FakeRegistry, body: Any, subject: str) -> Said:
    schema = _plain(body)
    for place, number in enumerate(fake.subjects.get(subject, []), 1):
        if fake.schemas[number - 1] == schema:
            return _version(fake, body, subject, str(place))
    return 404, {"error_code": 40403, "message": "Schema not found"}


def _config(fake: FakeRegistry, body: Any, subject: str = "") -> Said:
    if subject not in fake.levels:
        return 404, {"error_code": 40408, "message": "Subject does not have a level of its own"}
    return 200, {"compatibilityLevel": fake.levels[subject]}


def _configure(fake: FakeRegistry, body: Any, subject: str = "") -> Said:
    fake.levels[subject] = body["compatibility"]
    return 200, body


def _verdict(fake: FakeRegistry, body: Any, subject: str, version: str) -> Said:
    status, content = _version(fake, body, subject, version)
    if status != 200:
        return status, content
    fits = fake.judge(_plain(body), [_plain(content)], fake.levels.get(subject, fake.levels[""]))
    return 200, {"is_compatible": fits}


ROUTES: list[tuple[str, str, Callable[..., Said]]] = [
    ("GET", "/subjects", lambda fake, body: (200, list(fake.subjects))),
    ("GET", r"/schemas/ids/(\d+)", _by_id),
    ("GET", "/subjects/([^/]+)/versions", _versions),
    ("GET", r"/subjects/([^/]+)/versions/(latest|\d+)", _version),
    ("POST", "/subjects/([^/]+)/versions", lambda fake, body, subject: fake.register(subject, body)),
    ("POST", "/subjects/([^/]+)", _lookup),
    ("GET", "/config", _config),
    ("GET", "/config/([^/]+)", _config),
    ("PUT", "/config", _configure),
    ("PUT", "/config/([^/]+)", _configure),
    ("POST", r"/compatibility/subjects/([^/]+)/versions/(latest|\d+)", _verdict),
]


@contextmanager
def serving() -> Iterator[FakeRegistry]:
    """Run a registry until the end of the block."""
    fake = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            fake.asked.append((self.command, self.path, dict(self.headers)))
            if fake.faults:
                fake.faults.pop(0)(self)
                return
            status, content = fake.answer(self.command, urlsplit(self.path).path, body)
            reply(self, status, json.dumps(content).encode())

        do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the server asks for these names

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    """Send an answer unchanged."""
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
