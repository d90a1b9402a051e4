"""The Confluent REST API of schema registries, as functions from a request to an answer; no socket in sight.

What a schema means (whether it can be read, whether it goes with those before it) is decided by a check given from
outside.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from strandline.errors import StrandlineError
from strandline.formats.registry.subjects import Kind, Level, Reference, Schema, Version
from strandline.services.registry_store import Store

USUAL_LEVEL: Final = Level.BACKWARD


Check = Callable[[str, Sequence[str], Level, Kind, Mapping[str, str]], list[str]]
"""Why a schema does not go with older ones (the oldest first); raises when it cannot be read at all."""


class Refused(Exception):
    """An answer that says no: the status, the registry's own code, and why."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, once the path is understood."""

    parts: tuple[str, ...]
    options: Mapping[str, str]
    body: Any

    def wants(self, option: str) -> bool:
        return self.options.get(option, "false").lower() == "true"


Answer = Callable[[Request], Any]


class Api:
    """The registry's answers."""

    def __init__(self, store: Store, check: Check) -> None:
        self._store = store
        self._check = check
        name, number, version = "([^/]+)", "([0-9]+)", "([^/]+)"
        self._routes: Final[tuple[tuple[str, re.Pattern[str], Answer], ...]] = tuple(
            (method, re.compile(pattern), answer)
            for method, pattern, answer in (
                ("GET", "/", lambda _: {}),
                ("GET", "/schemas/types", lambda _: list(Kind)),
                ("GET", f"/schemas/ids/{number}", self._schema),
                ("GET", f"/schemas/ids/{number}/schema", self._schema_text),
                ("GET", f"/schemas/ids/{number}/subjects", self._schema_subjects),
                ("GET", f"/schemas/ids/{number}/versions", self._schema_versions),
                ("GET", "/subjects", self._subjects),
                ("POST", f"/subjects/{name}", self._lookup),
                ("DELETE", f"/subjects/{name}", self._delete_subject),
                ("GET", f"/subjects/{name}/versions", self._versions),
                ("POST", f"/subjects/{name}/versions", self._register),
                ("GET", f"/subjects/{name}/versions/{version}", self._version),
                ("DELETE", f"/subjects/{name}/versions/{version}", self._delete_version),
                ("GET", f"/subjects/{name}/versions/{version}/schema", self._version_text),
                ("GET", f"/subjects/{name}/versions/{version}/referencedby", self._users),
                ("GET", "/config", self._level),
                ("PUT", "/config", self._set_level),
                ("DELETE", "/config", self._unset_level),
                ("GET", f"/config/{name}", self._level),
                ("PUT", f"/config/{name}", self._set_level),
                ("DELETE", f"/config/{name}", self._unset_level),
                ("GET", "/mode", lambda _: {"mode": "READWRITE"}),
                ("POST", f"/compatibility/subjects/{name}/versions", self._compatible),
                ("POST", f"/compatibility/subjects/{name}/versions/{version}", self._compatible),
            )
        )

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON value for one request."""
        split = urlsplit(target)
        path = split.path.rstrip("/") or "/"
        options = {name: values[-1] for name, values in parse_qs(split.query).items()}
        try:
            for known, pattern, answer in self._routes:
                if known == method and (found := pattern.fullmatch(path)):
                    parts = tuple(unquote(part) for part in found.groups())
                    return 200, answer(Request(parts, options, _body(body)))
            raise Refused(404, 404, "HTTP 404 Not Found")
        except Refused as refused:
            return refused.status, {"error_code": refused.code, "message": refused.message}

    def _schema(self, asked: Request) -> dict[str, Any]:
        return _told(self._by_id(asked))

    def _schema_text(self, asked: Request) -> Any:
        return _plain(self._by_id(asked))

    def _schema_subjects(self, asked: Request) -> list[str]:
        self._by_id(asked)
        return sorted({version.subject for version in self._store.versions_of(int(asked.parts[0]))})

    def _schema_versions(self, asked: Request) -> list[dict[str, Any]]:
        self._by_id(asked)
        found = self._store.versions_of(int(asked.parts[0]))
        return [{"subject": version.subject, "version": version.version} for version in found]

    def _subjects(self, asked: Request) -> list[str]:
        prefix = asked.options.get("subjectPrefix", "")
        return [name for name in self._store.subjects(deleted=asked.wants("deleted")) if name.startswith(prefix)]

    def _versions(self, asked: Request) -> list[int]:
        return [version.version for version in self._present(asked.parts[0], deleted=asked.wants("deleted"))]

    def _version(self, asked: Request) -> dict[str, Any]:
        return _version_told(self._one(asked))

    def _version_text(self, asked: Request) -> Any:
        return _plain(self._one(asked).schema)

    def _users(self, asked: Request) -> list[int]:
        version = self._one(asked)
        return self._store.users_of(version.subject, version.version)

    def _register(self, asked: Request) -> dict[str, int]:
        subject, schema = asked.parts[0], self._readable(asked)

        def judge(before: Sequence[Version]) -> None:
            problems = self._problems(subject, schema, before)
            if problems:
                told = "; ".join(problems)
                message = f"Schema being registered is incompatible with an earlier schema for subject {subject!r}"
                raise Refused(409, 409, f"{message}, details: {told}")

        return {"id": self._store.register(subject, schema, judge)}

    def _lookup(self, asked: Request) -> dict[str, Any]:
        schema = self._readable(asked)
        for version in self._present(asked.parts[0], deleted=asked.wants("deleted")):
            if version.schema == schema:
                return _version_told(version)
        raise Refused(404, 40403, "Schema not found")

    def _delete_subject(self, asked: Request) -> list[int]:
        subject, permanent = asked.parts[0], asked.wants("permanent")
        present = self._present(subject, deleted=permanent)
        if permanent and self._store.versions(subject):
            raise Refused(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
        return self._deleted(subject, present, permanent=permanent)

    def _delete_version(self, asked: Request) -> int:
        permanent = asked.wants("permanent")
        version = self._one(asked, deleted=permanent)
        if permanent and version in self._store.versions(version.subject):
            where = f"Subject '{version.subject}' Version {version.version}"
            raise Refused(404, 40407, f"{where} was not deleted first before being permanently deleted")
        return self._deleted(version.subject, [version], permanent=permanent)[0]

    def _deleted(self, subject: str, versions: Sequence[Version], *, permanent: bool) -> list[int]:
        numbers = [version.version for version in versions]
        for number in numbers:
            if users := self._store.users_of(subject, number):
                raise Refused(422, 42206, f"One or more references exist to the schema, by the ids {users}")
        self._store.delete(subject, numbers, permanent=permanent)
        return numbers

    def _level(self, asked: Request) -> dict[str, str]:
        everywhere = self._store.level() or USUAL_LEVEL
        if not asked.parts:
            return {"compatibilityLevel": everywhere}
        own = self._store.level(asked.parts[0])
        if own is None and not asked.wants("defaultToGlobal"):
            raise Refused(
                404, 40408, f"Subject '{asked.parts[0]}' does not have subject-level compatibility configured"
            )
        return {"compatibilityLevel": own or everywhere}

    def _set_level(self, asked: Request) -> dict[str, str]:
        given = asked.body.get("compatibility") if isinstance(asked.body, dict) else None
        if given not in list(Level):
            raise Refused(422, 42203, f"Invalid compatibility level. Valid values are {', '.join(Level)}")
        self._store.set_level(Level(given), *asked.parts)
        return {"compatibility": given}

    def _unset_level(self, asked: Request) -> dict[str, str]:
        before = self._level(asked)
        self._store.set_level(None, *asked.parts)
        return before

    def _compatible(self, asked: Request) -> dict[str, Any]:
        subject, schema = asked.parts[0], self._readable(asked)
        versions = [self._one(asked)] if len(asked.parts) == 2 else self._store.versions(subject)
        problems = self._problems(subject, schema, versions)
        told = {"messages": problems} if asked.wants("verbose") else {}
        return {"is_compatible": not problems, **told}

    def _problems(self, subject: str, schema: Schema, before: Sequence[Version]) -> list[str]:
        level = self._store.level(subject) or self._store.level() or USUAL_LEVEL
        if level is Level.NONE or not before:
            return []
        if before[-1].schema.kind is not schema.kind:
            return [f"version {before[-1].version} is written in {before[-1].schema.kind}, not in {schema.kind}"]
        uses = self._texts([schema, *(version.schema for version in before)])
        return self._check(schema.text, [version.schema.text for version in before], level, schema.kind, uses)

    def _readable(self, asked: Request) -> Schema:
        schema = _given(asked.body)
        try:
            # Whoever can be compared with itself can be read.
            self._check(schema.text, [schema.text], USUAL_LEVEL, schema.kind, self._texts([schema]))
        except StrandlineError as error:
            raise Refused(422, 42201, f"Invalid schema: {error.message} {error.detail}".rstrip()) from None
        return schema

    def _texts(self, schemas: Sequence[Schema]) -> dict[str, str]:
        """The texts of all schemas that these use, by name; the innermost first."""
        texts: dict[str, str] = {}
        for use in (use for schema in schemas for use in schema.references):
            if use.name not in texts:
                used = self._used(use)
                texts |= self._texts([used]) | {use.name: used.text}
        return texts

    def _used(self, use: Reference) -> Schema:
        for version in self._store.versions(use.subject, deleted=True):
            if version.version == use.version:
                return version.schema
        where = f"subject '{use.subject}', version {use.version}"
        raise Refused(422, 42201, f"Invalid schema: the reference {use.name!r} to {where} is not there")

    def _by_id(self, asked: Request) -> Schema:
        schema = self._store.schema(int(asked.parts[0]))
        if schema is None:
            raise Refused(404, 40403, f"Schema {asked.parts[0]} not found")
        return schema

    def _present(self, subject: str, *, deleted: bool = False) -> list[Version]:
        versions = self._store.versions(subject, deleted=deleted)
        if not versions:
            raise Refused(404, 40401, f"Subject '{subject}' not found.")
        return versions

    def _one(self, asked: Request, *, deleted: bool = False) -> Version:
        subject, wanted = asked.parts[:2]
        versions = self._present(subject, deleted=deleted or asked.wants("deleted"))
        if wanted in ("latest", "-1"):
            return versions[-1]
        if not wanted.isdigit() or int(wanted) == 0:
            raise Refused(422, 42202, f"The specified version '{wanted}' is not a valid version id.")
        for version in versions:
            if version.version == int(wanted):
                return version
        raise Refused(404, 40402, f"Version {wanted} not found.")


def _body(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, 400, "the body is no JSON") from None


def _given(body: Any) -> Schema:
    facts = body if isinstance(body, dict) else {}
    text, kind = facts.get("schema"), facts.get("schemaType") or Kind.AVRO
    if not isinstance(text, str):
        raise Refused(422, 42201, "Invalid schema: the body has no text under `schema`")
    if kind not in list(Kind):
        raise Refused(422, 42201, f"Invalid schema: the type {kind!r} is not one of {', '.join(Kind)}")
    return Schema(Kind(kind), _without_blanks(Kind(kind), text), _references(facts.get("references")))


def _references(written: Any) -> tuple[Reference, ...]:
    try:
        return tuple(Reference(str(use["name"]), str(use["subject"]), int(use["version"])) for use in written or ())
    except (KeyError, TypeError, ValueError):
        raise Refused(422, 42201, "Invalid schema: a reference has a name, a subject and a version") from None


def _without_blanks(kind: Kind, text: str) -> str:
    """The same schema written with other blanks is the same schema."""
    if kind is Kind.PROTOBUF:
        return text.strip()
    try:
        return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        raise Refused(422, 42201, "Invalid schema: it is no JSON") from None


def _told(schema: Schema) -> dict[str, Any]:
    told: dict[str, Any] = {"schema": schema.text}
    if schema.kind is not Kind.AVRO:
        told["schemaType"] = schema.kind
    if schema.references:
        told["references"] = [
            {"name": use.name, "subject": use.subject, "version": use.version} for use in schema.references
        ]
    return told


def _version_told(version: Version) -> dict[str, Any]:
    return {"subject": version.subject, "version": version.version, "id": version.id, **_told(version.schema)}


def _plain(schema: Schema) -> Any:
    return schema.text if schema.kind is Kind.PROTOBUF else json.loads(schema.text)
