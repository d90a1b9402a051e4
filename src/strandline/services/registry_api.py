"""Answer the Confluent REST API of schema registries, as functions from a request to an answer, without sockets.

The caller passes a check that parses schemas and judges their compatibility.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from strandline.errors import StrandlineError
from strandline.formats.registry.subjects import Kind, Level, Reference, Schema, Version
from strandline.services.registry_store import Store

_VERSION: Final = re.compile(r"[0-9]{1,10}")
DEFAULT_LEVEL: Final = Level.BACKWARD


Check = Callable[[str, Sequence[str], Level, Kind, Mapping[str, str]], list[str]]
"""Lists why a schema is incompatible with older ones, given oldest first; raises an error if it cannot be parsed."""


class Refused(Exception):
    """An error answer: the HTTP status, the registry's error code, and the message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Request:
    """A request with its path parsed."""

    parts: tuple[str, ...]
    options: Mapping[str, str]
    body: Any

    def has_flag(self, option: str) -> bool:
        return self.options.get(option, "false").lower() == "true"


Answer = Callable[[Request], Any]


class Api:
    """Routes requests and computes the answers."""

    def __init__(self, store: Store, check: Check) -> None:
        self._store = store
        self._check = check
        name, number, version = "([^/]+)", "([0-9]{1,18})", "([^/]+)"  # such a number fits into 64 bits
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
                ("GET", f"/subjects/{name}/versions/{version}/referencedby", self._references_to),
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
        """Return the status and JSON value for one request."""
        path = target
        try:
            split = _split(target)
            path = split.path.rstrip("/") or "/"
            options = {name: values[-1] for name, values in parse_qs(split.query).items()}
            for known, pattern, answer in self._routes:
                if known == method and (found := pattern.fullmatch(path)):
                    parts = tuple(unquote(part) for part in found.groups())
                    return 200, answer(Request(parts, options, _body(body)))
            raise Refused(404, 404, "HTTP 404 Not Found")
        except Refused as refused:
            return refused.status, {"error_code": refused.code, "message": refused.message}
        except Exception as problem:  # noqa: BLE001 - a request that no rule foresees must not cost the connection
            print("error:", repr(f"{method} {path[:200]}: {problem}"[:500]), flush=True)  # noqa: T201 - the service's log
            return 500, {"error_code": 50001, "message": f"Error in the backend: {type(problem).__name__}"}

    def _schema(self, request: Request) -> dict[str, Any]:
        return _schema_json(self._by_id(request))

    def _schema_text(self, request: Request) -> Any:
        return _plain(self._by_id(request))

    def _schema_subjects(self, request: Request) -> list[str]:
        self._by_id(request)
        return sorted({version.subject for version in self._store.versions_of(int(request.parts[0]))})

    def _schema_versions(self, request: Request) -> list[dict[str, Any]]:
        self._by_id(request)
        found = self._store.versions_of(int(request.parts[0]))
        return [{"subject": version.subject, "version": version.version} for version in found]

    def _subjects(self, request: Request) -> list[str]:
        prefix = request.options.get("subjectPrefix", "")
        return [name for name in self._store.subjects(deleted=request.has_flag("deleted")) if name.startswith(prefix)]

    def _versions(self, request: Request) -> list[int]:
        return [version.version for version in self._versions_of(request.parts[0], deleted=request.has_flag("deleted"))]

    def _version(self, request: Request) -> dict[str, Any]:
        return _version_json(self._requested_version(request))

    def _version_text(self, request: Request) -> Any:
        return _plain(self._requested_version(request).schema)

    def _references_to(self, request: Request) -> list[int]:
        version = self._requested_version(request)
        return self._store.users_of(version.subject, version.version)

    def _register(self, request: Request) -> dict[str, int]:
        subject, schema = request.parts[0], self._valid_schema(request)

        def judge(before: Sequence[Version]) -> None:
            problems = self._problems(subject, schema, before)
            if problems:
                details = "; ".join(problems)
                message = f"Schema being registered is incompatible with an earlier schema for subject {subject!r}"
                raise Refused(409, 409, f"{message}, details: {details}")

        return {"id": self._store.register(subject, schema, judge)}

    def _lookup(self, request: Request) -> dict[str, Any]:
        schema = self._valid_schema(request)
        for version in self._versions_of(request.parts[0], deleted=request.has_flag("deleted")):
            if version.schema == schema:
                return _version_json(version)
        raise Refused(404, 40403, "Schema not found")

    def _delete_subject(self, request: Request) -> list[int]:
        subject, permanent = request.parts[0], request.has_flag("permanent")
        present = self._versions_of(subject, deleted=permanent)
        if permanent and self._store.versions(subject):
            raise Refused(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
        return self._delete(subject, present, permanent=permanent)

    def _delete_version(self, request: Request) -> int:
        permanent = request.has_flag("permanent")
        version = self._requested_version(request, deleted=permanent)
        if permanent and version in self._store.versions(version.subject):
            where = f"Subject '{version.subject}' Version {version.version}"
            raise Refused(404, 40407, f"{where} was not deleted first before being permanently deleted")
        return self._delete(version.subject, [version], permanent=permanent)[0]

    def _delete(self, subject: str, versions: Sequence[Version], *, permanent: bool) -> list[int]:
        numbers = [version.version for version in versions]
        for number in numbers:
            if users := self._store.users_of(subject, number):
                raise Refused(422, 42206, f"One or more references exist to the schema, by the ids {users}")
        self._store.delete(subject, numbers, permanent=permanent)
        return numbers

    def _level(self, request: Request) -> dict[str, str]:
        everywhere = self._store.level() or DEFAULT_LEVEL
        if not request.parts:
            return {"compatibilityLevel": everywhere}
        own = self._store.level(request.parts[0])
        if own is None and not request.has_flag("defaultToGlobal"):
            raise Refused(
                404, 40408, f"Subject '{request.parts[0]}' does not have subject-level compatibility configured"
            )
        return {"compatibilityLevel": own or everywhere}

    def _set_level(self, request: Request) -> dict[str, str]:
        given = request.body.get("compatibility") if isinstance(request.body, dict) else None
        if given not in list(Level):
            raise Refused(422, 42203, f"Invalid compatibility level. Valid values are {', '.join(Level)}")
        self._store.set_level(Level(given), *request.parts)
        return {"compatibility": given}

    def _unset_level(self, request: Request) -> dict[str, str]:
        before = self._level(request)
        self._store.set_level(None, *request.parts)
        return before

    def _compatible(self, request: Request) -> dict[str, Any]:
        subject, schema = request.parts[0], self._valid_schema(request)
        versions = [self._requested_version(request)] if len(request.parts) == 2 else self._store.versions(subject)
        problems = self._problems(subject, schema, versions)
        details = {"messages": problems} if request.has_flag("verbose") else {}
        return {"is_compatible": not problems, **details}

    def _problems(self, subject: str, schema: Schema, before: Sequence[Version]) -> list[str]:
        level = self._store.level(subject) or self._store.level() or DEFAULT_LEVEL
        if level is Level.NONE or not before:
            return []
        if before[-1].schema.kind is not schema.kind:
            return [f"version {before[-1].version} is written in {before[-1].schema.kind}, not in {schema.kind}"]
        uses = self._texts([schema, *(version.schema for version in before)])
        return self._check(schema.text, [version.schema.text for version in before], level, schema.kind, uses)

    def _valid_schema(self, request: Request) -> Schema:
        schema = _parse_schema(request.body)
        try:
            # A schema that can be compared with itself is valid.
            self._check(schema.text, [schema.text], DEFAULT_LEVEL, schema.kind, self._texts([schema]))
        except StrandlineError as error:
            raise Refused(422, 42201, f"Invalid schema: {error.message} {error.detail}".rstrip()) from None
        return schema

    def _texts(self, schemas: Sequence[Schema]) -> dict[str, str]:
        """The texts of all schemas that these refer to, by name; the innermost first."""
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
        raise Refused(422, 42201, f"Invalid schema: the reference {use.name!r} to {where} does not exist")

    def _by_id(self, request: Request) -> Schema:
        schema = self._store.schema(int(request.parts[0]))
        if schema is None:
            raise Refused(404, 40403, f"Schema {request.parts[0]} not found")
        return schema

    def _versions_of(self, subject: str, *, deleted: bool = False) -> list[Version]:
        versions = self._store.versions(subject, deleted=deleted)
        if not versions:
            raise Refused(404, 40401, f"Subject '{subject}' not found.")
        return versions

    def _requested_version(self, request: Request, *, deleted: bool = False) -> Version:
        subject, wanted = request.parts[:2]
        versions = self._versions_of(subject, deleted=deleted or request.has_flag("deleted"))
        if wanted in ("latest", "-1"):
            return versions[-1]
        if not _VERSION.fullmatch(wanted) or int(wanted) == 0:
            raise Refused(422, 42202, f"The specified version '{wanted}' is not a valid version id.")
        for version in versions:
            if version.version == int(wanted):
                return version
        raise Refused(404, 40402, f"Version {wanted} not found.")


def _split(target: str) -> SplitResult:
    try:
        return urlsplit(target)
    except ValueError:
        raise Refused(404, 404, "HTTP 404 Not Found") from None


def _body(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, 400, "the body is not JSON") from None


def _parse_schema(body: Any) -> Schema:
    facts = body if isinstance(body, dict) else {}
    text, kind = facts.get("schema"), facts.get("schemaType") or Kind.AVRO
    if not isinstance(text, str) or not _is_unicode(text):
        raise Refused(422, 42201, "Invalid schema: the body has no text under `schema`")
    if not isinstance(kind, str) or kind not in list(Kind):
        raise Refused(422, 42201, f"Invalid schema: the type {kind!r} is not one of {', '.join(Kind)}")
    return Schema(Kind(kind), _normalized(Kind(kind), text), _references(facts.get("references")))


def _references(written: Any) -> tuple[Reference, ...]:
    try:
        found = tuple(Reference(str(use["name"]), str(use["subject"]), int(use["version"])) for use in written or ())
        if any(not _is_unicode(use.name + use.subject) for use in found):
            raise ValueError
        return found
    except (KeyError, TypeError, ValueError, OverflowError):
        raise Refused(422, 42201, "Invalid schema: a reference has a name, a subject and a version") from None


def _is_unicode(text: str) -> bool:
    """Whether a text can be stored: JSON can hold half of a character."""
    try:
        return text.encode() is not None
    except UnicodeEncodeError:
        return False


def _normalized(kind: Kind, text: str) -> str:
    """Normalize whitespace: schemas that differ in it only are the same."""
    if kind is Kind.PROTOBUF:
        return text.strip()
    try:
        return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        raise Refused(422, 42201, "Invalid schema: it is not JSON") from None


def _schema_json(schema: Schema) -> dict[str, Any]:
    fields: dict[str, Any] = {"schema": schema.text}
    if schema.kind is not Kind.AVRO:
        fields["schemaType"] = schema.kind
    if schema.references:
        fields["references"] = [
            {"name": use.name, "subject": use.subject, "version": use.version} for use in schema.references
        ]
    return fields


def _version_json(version: Version) -> dict[str, Any]:
    return {"subject": version.subject, "version": version.version, "id": version.id, **_schema_json(version.schema)}


def _plain(schema: Schema) -> Any:
    return schema.text if schema.kind is Kind.PROTOBUF else json.loads(schema.text)
