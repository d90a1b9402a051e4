"""List, show, check and register schemas in a registry: `strandline schema`."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.cli.terminal import printable, say, say_lines
from strandline.errors import InvalidSchema, SchemaNotFound, SchemaRefused, SetupError
from strandline.formats.avro.schema import columns_of, parse_avro, record_of
from strandline.formats.compatibility import check as check_compatibility
from strandline.formats.protobuf.messages import columns_of as message_columns
from strandline.formats.protobuf.messages import message_of
from strandline.formats.registry.client import Client, registry
from strandline.formats.registry.subjects import Kind, Level, Schema, Version
from strandline.formats.schema import to_ddl

ADDRESS: Final = "STRANDLINE_REGISTRY"
COMPATIBLE, INCOMPATIBLE = 0, 1
_SUFFIXES: Final = {".avsc": Kind.AVRO, ".proto": Kind.PROTOBUF, ".json": Kind.JSON}


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """The registry options of the command line."""

    url: str | None = None
    user: str | None = None
    password: str | None = None
    token: str | None = None

    def client(self) -> Client:
        url = self.url or os.environ.get(ADDRESS)
        if not url:
            raise SetupError("no registry is given", hint=f"give --registry http://localhost:8081, or set {ADDRESS}")
        return registry(url, user=self.user, password=self.password, token=self.token).client()


def run_list(where: RegistryOptions, *, as_json: bool) -> int:
    """Print every subject with its latest version and compatibility level."""
    client = where.client()
    found = [(client.latest(subject), client.level(subject)) for subject in client.subjects()]
    if as_json:
        print(json.dumps([{**_facts(each), "level": level.value} for each, level in found], indent=2))
        return COMPATIBLE
    for each, level in found:
        text = f"{each.subject}  version {each.version}  id {each.id}  {each.schema.kind.value}  {level.value}"
        say(printable(text))
    if not found:
        say("no subjects")
    return COMPATIBLE


def run_show(where: RegistryOptions, subject: str, version: int | None, *, as_json: bool) -> int:
    """Print one version: its text, and its columns as DDL."""
    client = where.client()
    found = client.latest(subject) if version is None else client.version(subject, version)
    columns = _columns(client, found.schema)
    if as_json:
        print(json.dumps({**_facts(found), "schema": found.schema.text, "columns": columns}, indent=2))
        return COMPATIBLE
    say(printable(f"{found.subject}  version {found.version}  id {found.id}  {found.schema.kind.value}"))
    say_lines(printable(_pretty(found.schema), keep_lines=True))
    say(f"columns: {columns}" if columns else "no columns: only a record or a message has columns")
    return COMPATIBLE


def run_check(where: RegistryOptions, subject: str, file: Path, kind: str | None, level: str | None) -> int:
    """Print whether a new schema is compatible, with the reasons if not."""
    client, schema = where.client(), read_schema(file, kind)
    wanted = client.level(subject) if level is None else _level(level)
    reasons = _reasons(client, subject, schema, wanted)
    for reason in reasons:
        say(reason)
    say(f"{file} {'is not compatible' if reasons else 'is compatible'} with {subject} ({wanted.value})")
    return INCOMPATIBLE if reasons else COMPATIBLE


def run_register(where: RegistryOptions, subject: str, file: Path, kind: str | None) -> int:
    """Register a compatible schema and print its id."""
    client, schema = where.client(), read_schema(file, kind)
    reasons = _reasons(client, subject, schema, client.level(subject))
    if reasons:
        raise SchemaRefused(f"{file} is not compatible with {subject}", detail="; ".join(reasons))
    say(f"{subject}: id {client.register(subject, schema)}")
    return COMPATIBLE


def read_schema(file: Path, kind: str | None) -> Schema:
    """Read a schema from a file; its kind is given, or follows from the file name."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise SetupError(f"cannot read {file}", detail=str(problem)) from None
    if kind is None and file.suffix not in _SUFFIXES:
        raise InvalidSchema(f"cannot tell what kind of schema {file} is", hint="give --kind avro, protobuf or json")
    try:
        found = _SUFFIXES[file.suffix] if kind is None else Kind(kind.upper())
    except ValueError:
        raise InvalidSchema(f"{kind!r} is not a kind of schema", hint="choose avro, protobuf or json") from None
    check_compatibility(text, [text], Level.FULL, found)  # refuses an invalid schema with the reason
    return Schema(found, text)


def _reasons(client: Client, subject: str, schema: Schema, level: Level) -> list[str]:
    try:
        versions = client.versions(subject)
    except SchemaNotFound:
        return []
    older = [client.version(subject, number).schema for number in versions]
    if older and older[-1].kind is not schema.kind and level is not Level.NONE:
        return [f"version {versions[-1]} is written in {older[-1].kind.value}, the new one in {schema.kind.value}"]
    same_kind = [each for each in older if each.kind is schema.kind]
    uses = {name: text for each in same_kind for name, text in client.used_by(each).items()}
    return check_compatibility(schema.text, [each.text for each in same_kind], level, schema.kind, uses)


def _level(name: str) -> Level:
    try:
        return Level(name.upper())
    except ValueError:
        known = ", ".join(each.value.lower() for each in Level)
        raise InvalidSchema(f"{name!r} is not a compatibility level", hint=f"choose {known}") from None


def _facts(version: Version) -> dict[str, object]:
    return {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
        "kind": version.schema.kind.value,
    }


def _pretty(schema: Schema) -> str:
    if schema.kind is Kind.PROTOBUF:
        return schema.text.strip()
    try:
        return json.dumps(json.loads(schema.text), indent=2)
    except ValueError:
        return schema.text


def _columns(client: Client, schema: Schema) -> str | None:
    uses = client.used_by(schema)
    try:
        if schema.kind is Kind.AVRO:
            return to_ddl(columns_of(record_of(parse_avro(schema.text, uses))))
        if schema.kind is Kind.PROTOBUF:
            return to_ddl(message_columns(message_of(schema.text, tuple(uses.items()), None)))
    except InvalidSchema:
        return None
    return None
