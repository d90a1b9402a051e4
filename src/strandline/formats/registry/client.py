"""Client of a schema registry with the Confluent REST API: its settings as a value, and a caching client."""

import base64
import http.client
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlsplit

from strandline.errors import (
    InvalidStep,
    RegistryDown,
    RegistryError,
    SchemaNotFound,
    SchemaRefused,
)
from strandline.formats.http import Answer, ForeignRedirect, InvalidHeader, TooLarge, send_request
from strandline.formats.registry.subjects import Kind, Level, Reference, Schema, Version
from strandline.formats.secrets import Secret, secret
from strandline.formats.urls import is_loopback, shown_url
from strandline.model.arguments import checked
from strandline.model.elements import Duration
from strandline.redaction import remember

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_BUSY: Final = frozenset({408, 429})
_NOT_FOUND: Final = frozenset({40401, 40402, 40403, 40408})
"""Error codes for a missing subject, version, schema or subject level. Other 404 answers may come from a wrong
address."""
_DEEPEST: Final = 16
_LONGEST_DETAIL: Final = 300


@dataclass(frozen=True, slots=True)
class Registry:
    """Settings of a schema registry. Secrets are references that are resolved late."""

    url: str
    user: Secret | None = None
    password: Secret | None = None
    token: Secret | None = None
    ca: str | None = None
    """A file with the certificates to trust, if not the system's."""
    timeout: Duration = Duration(10_000)
    fresh: Duration = Duration(60_000)
    """How long the latest version of a subject, and the absence of a schema, are cached."""
    attempts: int = 4
    """How often a request is tried, with growing pauses, before the registry counts as down; a batch then waits for
    it, and says so. That must take less than five seconds."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username is not None or parts.password is not None:
            raise InvalidStep("the registry's address contains a password", hint='use user="env:…", password="env:…"')
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidStep(f"{self.url!r} is not an HTTP address", hint="write it like http://localhost:8081")
        if self.attempts < 1:
            raise InvalidStep(f"attempts is {self.attempts}", hint="use 1 or more")
        if (self.user is None) != (self.password is None) or (self.token and self.user):
            raise InvalidStep("a registry takes a user with a password, or a token", hint="use one of the two")
        if self._sends_secrets and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise InvalidStep(
                f"a secret would be sent to {parts.hostname} unencrypted", hint="use https, or a registry on localhost"
            )

    @property
    def definition(self) -> Mapping[str, Any]:
        """Empty: ids mean the same to a checkpoint, whatever address they are looked up at."""
        return {}

    @property
    def _sends_secrets(self) -> bool:
        return self.password is not None or self.token is not None

    def client(self) -> "Client":
        """Return this process's client, with its cache."""
        return _client(self)


@checked
def registry(
    url: str,
    *,
    user: str | Secret | None = None,
    password: str | Secret | None = None,
    token: str | Secret | None = None,
    ca: str | None = None,
) -> Registry:
    """Use a schema registry: `registry("https://schemas:8081", user="env:SR_USER", password="env:SR_PASSWORD")`."""
    name, word, pass_key = (None if each is None else secret(each) for each in (user, password, token))
    return Registry(url, name, word, pass_key, ca)


@dataclass(slots=True)
class Client:
    """Client that retries with pauses while the registry is unreachable, and caches what cannot change."""

    registry: Registry
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _by_id: dict[int, Schema] = field(default_factory=dict)
    _versions: dict[tuple[str, int], Version] = field(default_factory=dict)
    _missing: dict[int, float] = field(default_factory=dict)
    _latest: dict[str, tuple[float, Version]] = field(default_factory=dict)

    def schema(self, number: int) -> Schema:
        """The schema with this id, which never changes."""
        if number not in self._by_id:
            if self._is_fresh(self._missing.get(number)):
                raise SchemaNotFound(f"the registry has no schema {number}")
            try:
                self._by_id[number] = _schema(self._get("schemas", "ids", number))
            except SchemaNotFound:
                self._missing[number] = self.clock()
                raise
        return self._by_id[number]

    def subjects(self) -> list[str]:
        return sorted(_checked(self._get("subjects"), list))

    def versions(self, subject: str) -> list[int]:
        return sorted(_checked(self._get("subjects", subject, "versions"), list))

    def version(self, subject: str, number: int) -> Version:
        """One version of a subject; cached, since a version never changes."""
        if (subject, number) not in self._versions:
            self._versions[subject, number] = _version(self._get("subjects", subject, "versions", number))
        return self._versions[subject, number]

    def latest(self, subject: str) -> Version:
        """The latest version of a subject, cached for the registry's `fresh` time."""
        cached_at, found = self._latest.get(subject, (None, None))
        if found is None or not self._is_fresh(cached_at):
            found = _version(self._get("subjects", subject, "versions", "latest"))
            self._latest[subject] = (self.clock(), found)
        return found

    def register(self, subject: str, schema: Schema) -> int:
        """Register a schema and return its id, new or known; raise an error if the registry finds it incompatible."""
        answer = self._request("POST", ("subjects", subject, "versions"), _to_json(schema))
        self._latest.pop(subject, None)
        return int(_checked(answer, dict)["id"])

    def lookup(self, subject: str, schema: Schema) -> Version:
        """The version under which a subject holds this exact schema."""
        return _version(self._request("POST", ("subjects", subject), _to_json(schema)))

    def level(self, subject: str | None = None) -> Level:
        """The compatibility level of a subject, or else the registry's default."""
        if subject is not None:
            try:
                return _level(self._get("config", subject))
            except SchemaNotFound:
                pass
        return _level(self._get("config"))

    def set_level(self, level: Level, subject: str | None = None) -> None:
        path = ("config",) if subject is None else ("config", subject)
        self._request("PUT", path, {"compatibility": level.value})

    def verdict(self, subject: str, schema: Schema, version: int | str = "latest") -> bool:
        """Whether the registry finds a new schema compatible."""
        path = ("compatibility", "subjects", subject, "versions", version)
        return bool(_checked(self._request("POST", path, _to_json(schema)), dict)["is_compatible"])

    def used_by(self, schema: Schema) -> dict[str, str]:
        """The text of every schema that this one refers to, directly or not, by reference name; the innermost first."""
        found: dict[str, str] = {}
        self._collect(schema.references, found, 0)
        return found

    def _collect(self, references: Iterable[Reference], found: dict[str, str], depth: int) -> None:
        if depth > _DEEPEST:
            raise RegistryError(f"schema references nested more than {_DEEPEST} deep")
        for each in references:
            if each.name not in found:
                used = self.version(each.subject, each.version).schema
                self._collect(used.references, found, depth + 1)
                found[each.name] = used.text

    def _is_fresh(self, since: float | None) -> bool:
        return since is not None and self.clock() - since < self.registry.fresh.ms / 1000

    def _get(self, *path: str | int) -> Any:
        return self._request("GET", path)

    def _request(self, method: str, path: tuple[str | int, ...], body: Mapping[str, Any] | None = None) -> Any:
        what = f"{method} /{'/'.join(map(str, path))}"
        pause, trouble = _FIRST_PAUSE, ""
        for attempt in range(self.registry.attempts):
            if attempt:
                self.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            try:
                answer = self._send(method, path, body)
            except (OSError, http.client.HTTPException) as problem:
                trouble = f"{type(problem).__name__}: {problem}"
                continue
            except (ForeignRedirect, InvalidHeader, TooLarge) as problem:
                raise RegistryError(f"the registry's answer to {what} is refused", detail=str(problem)) from None
            if answer.status < 500 and answer.status not in _BUSY:
                return _parse_answer(answer, what)
            trouble = f"status {answer.status}"
            pause = min(answer.retry_after or pause, _LONGEST_PAUSE)
        raise RegistryDown(
            f"the registry at {shown_url(self.registry.url)} does not respond",
            detail=f"{what}, tried {self.registry.attempts} times; last error: {trouble}",
            hint="start it, or correct its address; the batch waits for it, and nothing is skipped",
        )

    def _send(self, method: str, path: tuple[str | int, ...], body: Mapping[str, Any] | None) -> Answer:
        place = "/".join(quote(str(part), safe="") for part in path)
        url = f"{self.registry.url.rstrip('/')}/{place}"
        text = None if body is None else json.dumps(body).encode()
        return send_request(method, url, self._headers(), text, self.registry.timeout.ms / 1000, self.registry.ca)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE}
        settings = self.registry
        if settings.token is not None:
            headers["Authorization"] = f"Bearer {settings.token.reveal()}"
        elif settings.user is not None and settings.password is not None:
            both = f"{settings.user.reveal()}:{settings.password.reveal()}".encode()
            encoded = base64.b64encode(both).decode()
            remember(encoded)
            headers["Authorization"] = f"Basic {encoded}"
        return headers


@lru_cache(maxsize=16)
def _client(registry: Registry) -> Client:
    return Client(registry)


def _parse_answer(answer: Answer, what: str) -> Any:
    try:
        content = json.loads(answer.body) if answer.body else None
    except (ValueError, RecursionError):
        content = None
    if 200 <= answer.status < 300:
        if content is None:
            raise RegistryError(
                f"the registry's answer to {what} is not JSON", hint="check that the address is a registry's"
            )
        return content
    code, message = _error_of(content)
    detail = f"{what}: status {answer.status}" + (f", {code} {message}" if message else "")
    if code in _NOT_FOUND:
        raise SchemaNotFound(f"the registry has no result for {what}", detail=detail)
    if answer.status in (401, 403):
        raise RegistryError("the registry rejects the credentials", detail=detail, hint="check user, password or token")
    if answer.status in (409, 422):
        raise SchemaRefused("the registry rejects this schema", detail=detail)
    raise RegistryError(
        f"the registry cannot answer {what}", detail=detail, hint="check that the address is a registry's"
    )


def _error_of(content: Any) -> tuple[int, str]:
    if not isinstance(content, dict):
        return 0, ""
    code = content.get("error_code")
    return code if isinstance(code, int) else 0, str(content.get("message", ""))[:_LONGEST_DETAIL]


def _checked(content: Any, kind: type) -> Any:
    if not isinstance(content, kind):
        raise RegistryError("the registry's answer has an unexpected structure", detail=repr(content)[:_LONGEST_DETAIL])
    return content


def _schema(content: Any) -> Schema:
    facts = _checked(content, dict)
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in facts.get("references") or ()
        )
        return Schema(Kind(facts.get("schemaType") or "AVRO"), str(facts["schema"]), references)
    except (KeyError, TypeError, ValueError) as problem:
        raise RegistryError("the registry's schema has an unexpected structure", detail=repr(problem)) from None


def _version(content: Any) -> Version:
    facts = _checked(content, dict)
    try:
        return Version(str(facts["subject"]), int(facts["version"]), int(facts["id"]), _schema(facts))
    except (KeyError, TypeError, ValueError) as problem:
        raise RegistryError("the registry's version has an unexpected structure", detail=repr(problem)) from None


def _level(content: Any) -> Level:
    facts = _checked(content, dict)
    found = facts.get("compatibilityLevel") or facts.get("compatibility")
    try:
        return Level(found)
    except ValueError:
        raise RegistryError(f"the registry has an unknown compatibility level: {found!r}") from None


def _to_json(schema: Schema) -> dict[str, Any]:
    facts: dict[str, Any] = {"schema": schema.text}
    if schema.kind is not Kind.AVRO:
        facts["schemaType"] = schema.kind.value
    if schema.references:
        facts["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references
        ]
    return facts
