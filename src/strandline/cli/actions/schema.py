"""`strandline schema`: what a registry holds, and whether a new schema would get on with it."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.errors import InvalidSchema, SchemaNotFound, SchemaRefused, SetupError
from strandline.formats.avro.schema import columns_of, parse_avro, record_of
from strandline.formats.compatibility import check as judge
from strandline.formats.protobuf.messages import columns_of as message_columns
from strandline.formats.protobuf.messages import message_of
from strandline.formats.registry.client import Client, registry
from strandline.formats.registry.subjects import Kind, Level, Schema, Version
from strandline.formats.schema import to_ddl

ADDRESS: Final = "STRANDLINE_REGISTRY"
FITS, DOES_NOT_FIT = 0, 1
_SUFFIXES: Final = {".avsc": Kind.AVRO, ".proto": Kind.PROTOBUF, ".json": Kind.JSON}


@dataclass(frozen=True, slots=True)
class Where:
    """The registry as the command line names it."""

    url: str | None = None
    user: str | None = None
    password: str | None = None
    token: str | None = None

    def client(self) -> Client:
        url = self.url or os.environ.get(ADDRESS)
        if not url:
            raise SetupError("no registry is named", hint=f"give --registry http://localhost:8081, or set {ADDRESS}")
        return registry(url, user=self.user, password=self.password, token=self.token).client()


def run_list(where: Where, *, as_json: bool) -> int:
    """Every subject with its latest version."""
    client = where.client()
    found = [(client.latest(subject), client.level(subject)) for subject in client.subjects()]
    if as_json:
        print(json.dumps([{**_facts(each), "level": level.value} for each, level in found], indent=2))
        return FITS
    for each, level in found:
        print(f"{each.subject}  version {each.version}  id {each.id}  {each.schema.kind.value}  {level.value}")
    if not found:
        print("no subject yet")
    return FITS


def run_show(where: Where, subject: str, version: int | None, *, as_json: bool) -> int:
    """One version: its text, and its columns as DDL."""
    client = where.client()
    found = client.latest(subject) if version is None else client.version(subject, version)
    columns = _columns(client, found.schema)
    if as_json:
        print(json.dumps({**_facts(found), "schema": found.schema.text, "columns": columns}, indent=2))
        return FITS
    print(f"{found.subject}  version {found.version}  id {found.id}  {found.schema.kind.value}")
    print(_pretty(found.schema))
    print(f"columns: {columns}" if columns else "no columns: only a record or a message has them")
    return FITS


def run_check(where: Where, subject: str, file: Path, kind: str | None, level: str | None) -> int:
    """Our verdict on a new schema, with its reasons."""
    client, schema = where.client(), read_schema(file, kind)
    asked = client.level(subject) if level is None else _level(level)
    reasons = _reasons(client, subject, schema, asked)
    for reason in reasons:
        print(reason)
    print(f"{file} {'does not fit' if reasons else 'fits'} {subject} ({asked.value})")
    return DOES_NOT_FIT if reasons else FITS


def run_register(where: Where, subject: str, file: Path, kind: str | None) -> int:
    """Registers a schema that fits, and says its id."""
    client, schema = where.client(), read_schema(file, kind)
    reasons = _reasons(client, subject, schema, client.level(subject))
    if reasons:
        raise SchemaRefused(f"{file} does not fit {subject}", detail="; ".join(reasons))
    print(f"{subject}: id {client.register(subject, schema)}")
    return FITS


def read_schema(file: Path, kind: str | None) -> Schema:
    """A schema from a file; its kind is said, or seen from the file's name."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise SetupError(f"cannot read {file}", detail=str(problem)) from None
    if kind is None and file.suffix not in _SUFFIXES:
        raise InvalidSchema(f"{file} may be any kind of schema", hint="say --kind avro, protobuf or json")
    try:
        found = _SUFFIXES[file.suffix] if kind is None else Kind(kind.upper())
    except ValueError:
        raise InvalidSchema(f"{kind!r} is no kind of schema", hint="choose avro, protobuf or json") from None
    judge(text, [text], Level.FULL, found)  # one that cannot be read is refused here, with the reason
    return Schema(found, text)


def _reasons(client: Client, subject: str, schema: Schema, level: Level) -> list[str]:
    try:
        versions = client.versions(subject)
    except SchemaNotFound:
        return []
    older = [client.version(subject, number).schema for number in versions]
    if older and older[-1].kind is not schema.kind and level is not Level.NONE:
        return [f"version {versions[-1]} is written in {older[-1].kind.value}, the new one in {schema.kind.value}"]
    alike = [each for each in older if each.kind is schema.kind]
    uses = {name: text for each in alike for name, text in client.used_by(each).items()}
    return judge(schema.text, [each.text for each in alike], level, schema.kind, uses)


def _level(said: str) -> Level:
    try:
        return Level(said.upper())
    except ValueError:
        known = ", ".join(each.value.lower() for each in Level)
        raise InvalidSchema(f"{said!r} is no level of compatibility", hint=f"choose {known}") from None


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
