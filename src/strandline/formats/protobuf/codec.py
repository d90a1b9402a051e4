"""Decode and encode Protobuf messages in whole batches, with or without a registry id, by the text of a .proto file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from google.protobuf.message import DecodeError

from strandline.errors import InvalidSchema, SinkError
from strandline.formats.protobuf.compatibility import incompatibilities
from strandline.formats.protobuf.messages import (
    Uses,
    at_index,
    class_of,
    columns_of,
    file_of,
    fill,
    getter,
    index_of,
    instants,
    is_instant,
    message_of,
)
from strandline.formats.registry.client import Registry
from strandline.formats.registry.confluent_wire import (
    HEAD,
    framed,
    refuse_without_subject,
    schema_of,
    unframed,
    unreadable,
)
from strandline.formats.registry.subjects import Kind, Schema
from strandline.formats.schema import types_of
from strandline.formats.undecodable_records import LARGEST, DecodeProblem, check_sizes, refuse_bad_limit, to_decoded
from strandline.formats.varints import NO_TIME
from strandline.model.arguments import checked
from strandline.ports.codecs import RAW, Decoded


@dataclass(frozen=True, slots=True)
class Protobuf:
    """Protobuf format for one message type. Fields are matched by number; a writer's schema is only checked to be
    compatible."""

    schema: str
    message: str | None = None
    registry: Registry | None = None
    subject: str | None = None
    number: int | None = None
    uses: Uses = ()
    largest: int = LARGEST

    def __post_init__(self) -> None:
        refuse_bad_limit(self.largest)
        _columns(self.schema, self.uses, self.message)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(_columns(self.schema, self.uses, self.message).names)

    @property
    def types(self) -> Mapping[str, str]:
        """Each column's type in DDL."""
        return types_of(_columns(self.schema, self.uses, self.message))

    def decode(self, raw: pl.DataFrame) -> Decoded:
        """Decode each record, then convert column by column."""
        checked = check_sizes(raw, self.largest)
        problems = dict(checked.problems)
        values = raw[RAW].to_list()
        parse = class_of(message_of(self.schema, self.uses, self.message)).FromString
        known: dict[bytes, DecodeProblem | int] = {}
        good: list[int] = []
        found: list[Any] = []
        for place in checked.full.tolist():
            value = values[place]
            try:
                skip = 0 if self.registry is None else self._head(self.registry, value, known)
                if isinstance(skip, DecodeProblem):
                    problems[place] = skip
                    continue
                found.append(parse(value[skip:]))
                good.append(place)
            except (DecodeError, ValueError) as problem:
                problems[place] = DecodeProblem(str(problem))
        frame, wrong = self._frame(found)
        if wrong:
            problems |= {good[at]: DecodeProblem(why) for at, why in wrong.items()}
            fine = [at for at in range(len(good)) if at not in wrong]
            frame, good = frame[fine], [good[at] for at in fine]
        return to_decoded(raw, np.array(good, np.int64), frame, checked.empty, problems)

    def _frame(self, found: Sequence[Any]) -> tuple[pl.DataFrame, dict[int, str]]:
        schema = _columns(self.schema, self.uses, self.message)
        wrong: dict[int, str] = {}
        columns: dict[str, pa.Array] = {}
        for field in message_of(self.schema, self.uses, self.message).fields:
            if is_instant(field):
                columns[field.name], out = instants(field, found)
                wrong |= dict.fromkeys(out, NO_TIME)
                continue
            get, kind = getter(field), schema.field(field.name).type
            try:
                columns[field.name] = pa.array(map(get, found), kind)
            except ValueError:
                columns[field.name] = pa.array(
                    [_get_or_report(get, each, at, wrong) for at, each in enumerate(found)], kind
                )
        shape = pl.Schema(schema)
        return pl.DataFrame(columns).cast(shape), wrong

    def _head(self, registry: Registry, value: bytes, known: dict[bytes, DecodeProblem | int]) -> DecodeProblem | int:
        """The length of the id and the message index, or the reason why these messages cannot be decoded."""
        number = unframed(value)
        index, end = read_index(value, HEAD)
        head = value[:end]
        if head not in known:
            known[head] = self._check_schema(registry, number, index) or end
        return known[head]

    def _check_schema(self, registry: Registry, number: int, index: tuple[int, ...]) -> DecodeProblem | None:
        found = schema_of(registry.client(), number, Kind.PROTOBUF)
        if isinstance(found, DecodeProblem):
            return found
        reader = "the pipeline's own schema" if self.number is None else f"schema {self.number}"
        try:
            written = at_index(file_of(found[0].text, tuple(found[1].items())), index)
            wanted = message_of(self.schema, self.uses, self.message)
            if written is None or written.name != wanted.name:
                message = f"message {list(index)}" if written is None else f"a message {written.full_name}"
                return unreadable(number, reader, f"{message} was written, {wanted.full_name} is read")
            why = "; ".join(incompatibilities(wanted, written))
            return unreadable(number, reader, why) if why else None
        except InvalidSchema as problem:
            return unreadable(number, reader, str(problem))

    def encode(self, rows: pl.DataFrame) -> pl.Series:
        """Encode each row as a message, with the schema's id if there is a registry."""
        message = message_of(self.schema, self.uses, self.message)
        make, head = class_of(message), b""
        if self.registry is not None:
            schema = Schema(Kind.PROTOBUF, self.schema)
            number = self.number or self.registry.client().lookup(refuse_without_subject(self.subject), schema).id
            head = framed(number, write_index(index_of(message)))
        try:
            found = [head + fill(make(), row).SerializeToString() for row in rows.select(self.columns).to_dicts()]
        except (ValueError, TypeError) as problem:
            raise SinkError("a row does not fit its message", detail=str(problem)[:200]) from None
        return pl.Series(found, dtype=pl.Binary)


@checked
def protobuf(
    schema: str | None = None,
    *,
    message: str | None = None,
    registry: Registry | None = None,
    subject: str | None = None,
    largest: int = LARGEST,
) -> Protobuf:
    """Read Protobuf messages: `protobuf(Path("score.proto").read_text())`, or with the subject's latest schema,
    pinned."""
    if schema is not None:
        return Protobuf(schema, message, registry, subject, largest=largest)
    if registry is None:
        raise InvalidSchema(
            "Protobuf cannot be decoded without a schema", hint="give a schema, or a registry and a subject"
        )
    client = registry.client()
    latest = client.latest(refuse_without_subject(subject))
    uses = tuple(client.used_by(latest.schema).items())
    return Protobuf(latest.schema.text, message, registry, subject, latest.id, uses, largest)


def read_index(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Read a message index: a count, then that many numbers; a single 0 means the first message."""
    count, at = _varint(value, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= len(value) - at:
        raise ValueError("a message index that is longer than the record")
    numbers = []
    for _ in range(count):
        number, at = _varint(value, at)
        numbers.append(number)
    return tuple(numbers), at


def write_index(index: tuple[int, ...]) -> bytes:
    if index == (0,):
        return b"\0"
    return b"".join(_write_varint(number) for number in (len(index), *index))


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(value) and shift < 35:
        number |= (value[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not value[at - 1] & 0x80:
            return number >> 1 ^ -(number & 1), at
    raise ValueError("the record ends in the middle of its message index")


def _write_varint(number: int) -> bytes:
    number <<= 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@lru_cache(maxsize=256)
def _columns(schema: str, uses: Uses, message: str | None) -> pa.Schema:
    return columns_of(message_of(schema, uses, message))


def _get_or_report(get: Any, found: Any, at: int, wrong: dict[int, str]) -> Any:
    try:
        return get(found)
    except ValueError as problem:
        wrong[at] = str(problem)
        return None
