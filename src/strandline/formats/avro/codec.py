"""Decode and encode Avro records in whole batches, with or without a registry id, resolved against the reader's
schema."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.errors import InvalidSchema, SetupError, SinkError
from strandline.formats.avro.columns import is_columnar, read_columns
from strandline.formats.avro.compatibility import incompatibilities
from strandline.formats.avro.ddl import avro_of, reader_for
from strandline.formats.avro.row_readers import read_rows
from strandline.formats.avro.schema import Array, Map, Node, Record, Union, columns_of, optional, parse_avro, record_of
from strandline.formats.registry.client import Registry
from strandline.formats.registry.confluent_wire import (
    HEAD,
    by_schema,
    framed,
    refuse_without_subject,
    schema_of,
    unreadable,
)
from strandline.formats.registry.subjects import Kind, Schema
from strandline.formats.schema import parse_ddl, types_of
from strandline.formats.undecodable_records import (
    LARGEST,
    DecodeProblem,
    Places,
    check_sizes,
    refuse_bad_limit,
    to_decoded,
)
from strandline.formats.varints import cursor_over
from strandline.model.arguments import checked
from strandline.ports.codecs import RAW, Decoded

Uses = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Avro:
    """Avro format. The reader's schema is Avro JSON or DDL; with a registry each record carries its writer's schema
    id."""

    schema: str
    registry: Registry | None = None
    subject: str | None = None
    number: int | None = None
    """The reader's schema id, if it came from the registry."""
    uses: Uses = ()
    largest: int = LARGEST

    def __post_init__(self) -> None:
        refuse_bad_limit(self.largest)
        _columns(self.schema, self.uses)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(_columns(self.schema, self.uses).names)

    @property
    def types(self) -> Mapping[str, str]:
        """Each column's type in DDL."""
        return types_of(_columns(self.schema, self.uses))

    def decode(self, raw: pl.DataFrame) -> Decoded:
        """Decode records by writer's schema; each record that cannot be decoded is reported on its own."""
        checked = check_sizes(raw, self.largest)
        problems = dict(checked.problems)
        values = _take(raw[RAW].to_arrow(), checked.full)
        groups: dict[int, Places] = {0: np.arange(len(values))}
        if self.registry is not None:
            groups, wrong = by_schema(values)
            problems |= {int(checked.full[place]): DecodeProblem(why) for place, why in wrong.items()}
        frames, good = [_empty(self.schema, self.uses)], [np.empty(0, np.int64)]
        for number, places in groups.items():
            group = checked.full[places]
            found = self._group(number, _take(values, places))
            if isinstance(found, DecodeProblem):
                problems |= dict.fromkeys(group.tolist(), found)
                continue
            frame, reasons = found
            decodable = np.ones(len(group), np.bool_)
            decodable[list(reasons)] = False
            problems |= {int(group[place]): DecodeProblem(why) for place, why in reasons.items()}
            frames.append(frame.filter(pl.Series(decodable)) if reasons else frame)
            good.append(group[decodable])
        return to_decoded(raw, np.concatenate(good), pl.concat(frames), checked.empty, problems)

    def _group(self, number: int, values: pa.Array) -> tuple[pl.DataFrame, dict[int, str]] | DecodeProblem:
        if self.registry is None:
            text, uses, skip = _avro_json(self.schema), self.uses, 0
        else:
            found = schema_of(self.registry.client(), number, Kind.AVRO)
            if isinstance(found, DecodeProblem):
                return found
            text, uses, skip = found[0].text, tuple(found[1].items()), HEAD
        try:
            writer, reader, why = _resolved(text, uses, self.schema, self.uses)
            if why:
                return unreadable(number, self._reader_name, why)
            if is_columnar(writer):
                return read_columns(cursor_over(values, skip), writer, reader)
            return read_rows([each[skip:] for each in values.to_pylist()], writer, reader)
        except InvalidSchema as problem:
            return unreadable(number, self._reader_name, str(problem))

    @property
    def _reader_name(self) -> str:
        return "the pipeline's own schema" if self.number is None else f"schema {self.number}"

    def encode(self, rows: pl.DataFrame) -> pl.Series:
        """Encode each row as Avro, with the schema's id if there is a registry."""
        writer, number = _encoder(self.schema, self.uses), None
        if self.registry is not None:
            subject = refuse_without_subject(self.subject)
            schema = Schema(Kind.AVRO, _avro_json(self.schema))
            number = self.number or self.registry.client().lookup(subject, schema).id
        record = record_of(parse_avro(_avro_json(self.schema), dict(self.uses)))
        found = [writer(_plain(record, row)) for row in rows.select(self.columns).iter_rows(named=True)]
        return pl.Series([each if number is None else framed(number, each) for each in found], dtype=pl.Binary)


@checked
def avro(
    schema: str | None = None,
    *,
    registry: Registry | None = None,
    subject: str | None = None,
    largest: int = LARGEST,
) -> Avro:
    """Read Avro records: `avro("team string, score long", registry=…)`, or with the subject's latest schema, which is
    pinned."""
    if schema is not None:
        return Avro(schema, registry, subject, largest=largest)
    if registry is None:
        raise InvalidSchema(
            "Avro cannot be decoded without a schema", hint="give a schema, or a registry and a subject"
        )
    client = registry.client()
    latest = client.latest(refuse_without_subject(subject))
    uses = tuple(client.used_by(latest.schema).items())
    return replace(Avro(latest.schema.text, registry, subject, latest.id, uses), largest=largest)


def _take(values: pa.Array, places: Places) -> pa.Array:
    return values if len(places) == len(values) else values.take(pa.array(places))


def _is_avro(schema: str) -> bool:
    return schema.lstrip()[:1] in ("{", "[", '"')


@lru_cache(maxsize=256)
def _columns(schema: str, uses: Uses) -> pa.Schema:
    return columns_of(record_of(parse_avro(schema, dict(uses)))) if _is_avro(schema) else parse_ddl(schema)


@lru_cache(maxsize=256)
def _avro_json(schema: str) -> str:
    """Return the schema as Avro JSON, converted from DDL if needed."""
    return schema if _is_avro(schema) else avro_of(parse_ddl(schema))


def _empty(schema: str, uses: Uses) -> pl.DataFrame:
    return pl.DataFrame(schema=pl.Schema(_columns(schema, uses)))


@lru_cache(maxsize=256)
def _resolved(text: str, uses: Uses, schema: str, reader_uses: Uses) -> tuple[Record, Record, str]:
    """The writer's schema, the reader's schema for it, and the reasons why they are incompatible, if any."""
    writer = record_of(parse_avro(text, dict(uses)))
    if _is_avro(schema):
        reader = record_of(parse_avro(schema, dict(reader_uses)))
    else:
        reader = reader_for(parse_ddl(schema), writer)
    return writer, reader, "; ".join(incompatibilities(reader, writer))


@lru_cache(maxsize=64)
def _encoder(schema: str, uses: Uses) -> Any:
    try:
        from fastavro import parse_schema, schemaless_writer  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise SetupError("Avro needs the package fastavro", hint="pip install 'strandline[avro]'") from None
    names: dict[str, Any] = {}
    for _, used in uses:
        parse_schema(json.loads(used), named_schemas=names)
    parsed = parse_schema(json.loads(_avro_json(schema)), named_schemas=names)

    def write(row: Mapping[str, Any]) -> bytes:
        file = io.BytesIO()
        try:
            schemaless_writer(file, parsed, row, strict_allow_default=True)
        except (ArithmeticError, LookupError, TypeError, ValueError) as problem:
            raise SinkError("a row does not fit its Avro schema", detail=str(problem)[:200]) from None
        return file.getvalue()

    return write


def _plain(node: Node, value: Any) -> Any:
    """Convert a column's value, recursively, to the types that fastavro expects."""
    if value is None:
        return None
    match node:
        case Union():
            real = optional(node)
            return value if real is None else _plain(real, value)
        case Record():
            return {each.name: _plain(each.type, value[each.name]) for each in node.fields}
        case Array(items):
            return [_plain(items, each) for each in value]
        case Map(values):
            return {key: _plain(values, each) for key, each in value.items()}
    return value
