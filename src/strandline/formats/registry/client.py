"""A schema registry that speaks the Confluent REST API: where it is, as a value, and a client that remembers."""

import base64
import http.client
import ipaddress
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
from strandline.formats.http import Answer, Elsewhere, TooLarge, ask
from strandline.formats.registry.subjects import Kind, Level, Reference, Schema, Version
from strandline.formats.secrets import Secret, secret
from strandline.model.elements import Duration

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_BUSY: Final = frozenset({408, 429})
_NOT_THERE: Final = frozenset({40401, 40402, 40403, 40408})
"""The subject, the version, the schema, a level of its own. Another 404 may be a wrong address, and says nothing."""
_DEEPEST: Final = 16
_LONGEST_TOLD: Final = 300


@dataclass(frozen=True, slots=True)
class Registry:
    """Where schemas are kept, who asks, and how long an answer may take. Secrets are references, looked up late."""

    url: str
    user: Secret | None = None
    password: Secret | None = None
    token: Secret | None = None
    ca: str | None = None
    """A file with the certificates to trust, where the system's are not the right ones."""
    timeout: Duration = Duration(10_000)
    fresh: Duration = Duration(60_000)
    """How long the latest version of a subject, and the absence of a schema, are taken as still true."""
    attempts: int = 5
    """How often it is asked, each time after a longer pause, before it counts as down; a batch then waits for it."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username is not None or parts.password is not None:
            raise InvalidStep("the registry's address holds a password", hint='give user="env:…", password="env:…"')
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidStep(f"{self.url!r} is no address of a registry", hint="write it like http://localhost:8081")
        if self.attempts < 1:
            raise InvalidStep(f"a registry that is asked {self.attempts} times", hint="ask it once or more")
        if (self.user is None) != (self.password is None) or (self.token and self.user):
            raise InvalidStep("a registry takes a user with a password, or a token", hint="give one of the two")
        if self._knows_a_secret and parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise InvalidStep(
                f"a secret would travel to {parts.hostname} in the clear", hint="use https, or a registry on localhost"
            )

    @property
    def definition(self) -> Mapping[str, Any]:
        """What makes it the same to a checkpoint: an id means what it means, by whichever door it is looked up."""
        return {}

    @property
    def _knows_a_secret(self) -> bool:
        return self.password is not None or self.token is not None

    def client(self) -> "Client":
        """The client of this process; asked twice, it is the same, with all it remembers."""
        return _client(self)


def registry(
    url: str,
    *,
    user: str | Secret | None = None,
    password: str | Secret | None = None,
    token: str | Secret | None = None,
    ca: str | None = None,
) -> Registry:
    """A schema registry: `registry("https://schemas:8081", user="env:SR_USER", password="env:SR_PASSWORD")`."""
    name, word, pass_key = (None if each is None else secret(each) for each in (user, password, token))
    return Registry(url, name, word, pass_key, ca)


@dataclass(slots=True)
class Client:
    """Asks a registry, again after a pause where it is out of reach, and remembers what cannot change."""

    registry: Registry
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _by_id: dict[int, Schema] = field(default_factory=dict)
    _versions: dict[tuple[str, int], Version] = field(default_factory=dict)
    _missing: dict[int, float] = field(default_factory=dict)
    _latest: dict[str, tuple[float, Version]] = field(default_factory=dict)

    def schema(self, number: int) -> Schema:
        """The schema with this id, which is the same for ever."""
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
        return sorted(_expected(self._get("subjects"), list))

    def versions(self, subject: str) -> list[int]:
        return sorted(_expected(self._get("subjects", subject, "versions"), list))

    def version(self, subject: str, number: int) -> Version:
        """One version of a subject. It is remembered: a version is written once."""
        if (subject, number) not in self._versions:
            self._versions[subject, number] = _version(self._get("subjects", subject, "versions", number))
        return self._versions[subject, number]

    def latest(self, subject: str) -> Version:
        """The newest version of a subject, at most as old as the registry's `fresh` says."""
        asked, found = self._latest.get(subject, (None, None))
        if found is None or not self._is_fresh(asked):
            found = _version(self._get("subjects", subject, "versions", "latest"))
            self._latest[subject] = (self.clock(), found)
        return found

    def register(self, subject: str, schema: Schema) -> int:
        """The schema's id, new or known; refused if the registry finds it incompatible."""
        said = self._ask("POST", ("subjects", subject, "versions"), _written(schema))
        self._latest.pop(subject, None)
        return int(_expected(said, dict)["id"])

    def lookup(self, subject: str, schema: Schema) -> Version:
        """The version under which a subject holds this very schema."""
        return _version(self._ask("POST", ("subjects", subject), _written(schema)))

    def level(self, subject: str | None = None) -> Level:
        """What new schemas of a subject are kept to, by its own rule or the registry's."""
        if subject is not None:
            try:
                return _level(self._get("config", subject))
            except SchemaNotFound:
                pass
        return _level(self._get("config"))

    def set_level(self, level: Level, subject: str | None = None) -> None:
        path = ("config",) if subject is None else ("config", subject)
        self._ask("PUT", path, {"compatibility": level.value})

    def verdict(self, subject: str, schema: Schema, version: int | str = "latest") -> bool:
        """What the registry itself says about a new schema."""
        path = ("compatibility", "subjects", subject, "versions", version)
        return bool(_expected(self._ask("POST", path, _written(schema)), dict)["is_compatible"])

    def used_by(self, schema: Schema) -> dict[str, str]:
        """The text of every schema it uses, directly or not, by the name it is used under; the innermost first."""
        found: dict[str, str] = {}
        self._follow(schema.references, found, 0)
        return found

    def _follow(self, references: Iterable[Reference], found: dict[str, str], depth: int) -> None:
        if depth > _DEEPEST:
            raise RegistryError(f"schemas that use each other more than {_DEEPEST} deep")
        for each in references:
            if each.name not in found:
                used = self.version(each.subject, each.version).schema
                self._follow(used.references, found, depth + 1)
                found[each.name] = used.text

    def _is_fresh(self, since: float | None) -> bool:
        return since is not None and self.clock() - since < self.registry.fresh.ms / 1000

    def _get(self, *path: str | int) -> Any:
        return self._ask("GET", path)

    def _ask(self, method: str, path: tuple[str | int, ...], body: Mapping[str, Any] | None = None) -> Any:
        what = f"{method} /{'/'.join(map(str, path))}"
        pause, trouble = _FIRST_PAUSE, ""
        for attempt in range(self.registry.attempts):
            if attempt:
                self.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            try:
                answer = self._once(method, path, body)
            except (OSError, http.client.HTTPException) as problem:
                trouble = f"{type(problem).__name__}: {problem}"
                continue
            except (Elsewhere, TooLarge) as problem:
                raise RegistryError(f"the registry's answer to {what} is refused", detail=str(problem)) from None
            if answer.status < 500 and answer.status not in _BUSY:
                return _understood(answer, what)
            trouble = f"status {answer.status}"
            pause = min(answer.retry_after or pause, _LONGEST_PAUSE)
        raise RegistryDown(
            f"the registry at {self.registry.url} is out of reach",
            detail=f"{what}, asked {self.registry.attempts} times; the last time {trouble}",
            hint="start it, or correct its address; nothing was skipped, the batch waits for it",
        )

    def _once(self, method: str, path: tuple[str | int, ...], body: Mapping[str, Any] | None) -> Answer:
        place = "/".join(quote(str(part), safe="") for part in path)
        url = f"{self.registry.url.rstrip('/')}/{place}"
        text = None if body is None else json.dumps(body).encode()
        return ask(method, url, self._headers(), text, self.registry.timeout.ms / 1000, self.registry.ca)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE}
        ours = self.registry
        if ours.token is not None:
            headers["Authorization"] = f"Bearer {ours.token.reveal()}"
        elif ours.user is not None and ours.password is not None:
            both = f"{ours.user.reveal()}:{ours.password.reveal()}".encode()
            headers["Authorization"] = "Basic " + base64.b64encode(both).decode()
        return headers


@lru_cache(maxsize=16)
def _client(registry: Registry) -> Client:
    return Client(registry)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _understood(answer: Answer, what: str) -> Any:
    try:
        said = json.loads(answer.body) if answer.body else None
    except (ValueError, RecursionError):
        said = None
    if 200 <= answer.status < 300:
        if said is None:
            raise RegistryError(f"the registry's answer to {what} is no JSON", hint="is this a registry's address?")
        return said
    code, message = _complaint(said)
    told = f"{what}: status {answer.status}" + (f", {code} {message}" if message else "")
    if code in _NOT_THERE:
        raise SchemaNotFound(f"the registry does not have what {what} asks for", detail=told)
    if answer.status in (401, 403):
        raise RegistryError("the registry does not let us in", detail=told, hint="check user, password or token")
    if answer.status in (409, 422):
        raise SchemaRefused("the registry does not take this schema", detail=told)
    raise RegistryError(f"the registry cannot answer {what}", detail=told, hint="is this a registry's address?")


def _complaint(said: Any) -> tuple[int, str]:
    if not isinstance(said, dict):
        return 0, ""
    code = said.get("error_code")
    return code if isinstance(code, int) else 0, str(said.get("message", ""))[:_LONGEST_TOLD]


def _expected(said: Any, kind: type) -> Any:
    if not isinstance(said, kind):
        raise RegistryError("the registry's answer has another shape than expected", detail=repr(said)[:_LONGEST_TOLD])
    return said


def _schema(said: Any) -> Schema:
    facts = _expected(said, dict)
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in facts.get("references") or ()
        )
        return Schema(Kind(facts.get("schemaType") or "AVRO"), str(facts["schema"]), references)
    except (KeyError, TypeError, ValueError) as problem:
        raise RegistryError("the registry's schema has another shape than expected", detail=repr(problem)) from None


def _version(said: Any) -> Version:
    facts = _expected(said, dict)
    try:
        return Version(str(facts["subject"]), int(facts["version"]), int(facts["id"]), _schema(facts))
    except (KeyError, TypeError, ValueError) as problem:
        raise RegistryError("the registry's version has another shape than expected", detail=repr(problem)) from None


def _level(said: Any) -> Level:
    facts = _expected(said, dict)
    found = facts.get("compatibilityLevel") or facts.get("compatibility")
    try:
        return Level(found)
    except ValueError:
        raise RegistryError(f"the registry keeps to a level we do not know: {found!r}") from None


def _written(schema: Schema) -> dict[str, Any]:
    facts: dict[str, Any] = {"schema": schema.text}
    if schema.kind is not Kind.AVRO:
        facts["schemaType"] = schema.kind.value
    if schema.references:
        facts["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references
        ]
    return facts
