"""Read and write the Confluent wire format: a zero byte and a schema id before every record."""

import struct
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from strandline.errors import InvalidSchema, SchemaNotFound
from strandline.formats.registry.client import Client
from strandline.formats.registry.subjects import Kind, Schema
from strandline.formats.undecodable_records import DecodeProblem, Places, Undecodable

HEAD: Final = 5
_HEAD: Final = struct.Struct(">BI")


def framed(number: int, body: bytes) -> bytes:
    """Prefix a record with its schema id."""
    return _HEAD.pack(0, number) + body


def unframed(value: bytes) -> int:
    """Return the schema id; raise ValueError if the frame is invalid."""
    if len(value) < HEAD:
        raise ValueError(f"{len(value)} bytes are too few for a schema's id")
    magic, number = _HEAD.unpack_from(value)
    if magic:
        raise ValueError(f"the first byte is {magic}, not 0: no schema's id follows")
    return int(number)


def by_schema(values: pa.Array) -> tuple[dict[int, Places], dict[int, str]]:
    """Group record positions by schema id, and report the records with invalid frames."""
    plain = values.cast(pa.large_binary())
    _, offsets, data = plain.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(plain) + 1, plain.offset * 8)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    long_enough = np.flatnonzero(bounds[1:] - bounds[:-1] >= HEAD)
    heads = content[bounds[:-1][long_enough, None] + np.arange(HEAD)].astype(np.int64)
    # A first byte other than 0 gives -1, which is not a valid id.
    numbers = np.full(len(plain), -1)
    numbers[long_enough] = np.where(heads[:, 0] == 0, heads[:, 1:] @ np.array([2**24, 2**16, 2**8, 1]), -1)
    groups = {int(number): np.flatnonzero(numbers == number) for number in np.unique(numbers)}
    others = groups.pop(-1, np.empty(0, np.int64))
    return groups, {int(place): _frame_problem(plain[place].as_py()) for place in others}


def _frame_problem(value: bytes) -> str:
    try:
        return f"schema {unframed(value)}"
    except ValueError as problem:
        return str(problem)


def schema_of(client: Client, number: int, kind: Kind) -> tuple[Schema, Mapping[str, str]] | DecodeProblem:
    """Return the schema with this id and its references, or why its records cannot be decoded.

    Raises RegistryDown if the registry does not respond.
    """
    try:
        found = client.schema(number)
        if found.kind is not kind:
            detail = f"schema {number} is written in {found.kind.value}, not in {kind.value}"
            return DecodeProblem(detail, Undecodable.INCOMPATIBLE_SCHEMA)
        return found, client.used_by(found)
    except SchemaNotFound:
        return DecodeProblem(f"the registry has no schema {number}", Undecodable.UNKNOWN_SCHEMA)


def unreadable(number: int, reader: str, why: str) -> DecodeProblem:
    """Return the problem of records whose schema the reader's schema cannot read."""
    return DecodeProblem(f"schema {number} cannot be read with {reader}: {why}", Undecodable.INCOMPATIBLE_SCHEMA)


def refuse_without_subject(subject: str | None) -> str:
    if subject is None:
        raise InvalidSchema("a schema from a registry needs its subject", hint='use subject="topic-value"')
    return subject
