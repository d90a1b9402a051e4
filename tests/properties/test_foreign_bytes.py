"""Every parser of foreign bytes returns a result or one of our errors, whatever the bytes are.

Each parser gets valid inputs, changed at random: bits flipped, parts cut out, doubled, swapped, numbers set to their
limits. The normal run takes ten seconds in all, the campaign ten minutes.
"""

import hashlib
import json
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import strandline as sl
from strandline.checkpoint.file_copies import COPIES, copy_line, read_copies
from strandline.connectors.files.manifest_log import VERSION, Log
from strandline.errors import StrandlineError
from strandline.formats.compatibility import check
from strandline.formats.registry.subjects import Kind, Level
from strandline.kernel.blocks.block import OFFSET, PARTITION, Block, pack, unpack
from strandline.kernel.state.slice_store import INDEX, Index, read_index, write_index
from strandline.letters.envelope_json import from_json
from strandline.plan.stories.story import read_stories
from strandline.ports.codecs import RAW
from strandline.ports.raw_records import PACKED
from strandline.savepoints.files import MANIFEST, load, verify
from strandline.services.registry_api import Api
from strandline.services.registry_store import Store
from strandline.spark.tasks.unpack_topic_rows import unpacked
from tests.formats.test_avro import BLUE as AVRO_BLUE
from tests.formats.test_avro import RED as AVRO_RED
from tests.formats.test_avro import SCORE as AVRO_SCORE
from tests.formats.test_protobuf import BLUE as PROTO_BLUE
from tests.formats.test_protobuf import RED as PROTO_RED
from tests.formats.test_protobuf import SCORE as PROTO_SCORE
from tests.spark.test_savepoint_files import saved

Parse = Callable[[bytes], object]
LIMITS = (b"\0" * 8, b"\xff" * 8, b"\xff" * 4, b"\x80", b"\x7f" * 4, b"99999999999999999999", b"-1", b"1e400", b"NaN")
WORDS = (
    b"null",
    b"{}",
    b"[]",
    b'""',
    b"\xed\xa0\x80",
    b"\\ud800",
    b"../../x",
    b"\x1b[2J",
    b"\n",
    b"[" * 200,
    b"{" * 200,
)
LINES = (b"red,5,2024-05-01,true", b'"a""b",,,')
LETTER = b'{"envelope": 1, "id": "a", "raw": "x", "event_time": null}'
SMALL, LONG = 10.0, 600.0


def changed(draw: random.Random, seeds: tuple[bytes, ...]) -> bytes:
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.choice((1, 1, 2, 3, 8))):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice((1, 2, 4, 8, 32)))
        match draw.randrange(7):
            case 0 if data and at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end]
            case 3:
                data[at:end] = draw.choice(LIMITS)
            case 4:
                data[at:at] = draw.choice(WORDS)
            case 5:
                data[at:end] = draw.randbytes(end - at)
            case _:
                other = draw.choice(seeds)
                data[at:] = other[draw.randrange(len(other) + 1) :]
    return bytes(data)


def decoding(form: Any) -> Parse:
    """A decoder never raises: a record is rows or a dead letter."""

    def parse(data: bytes) -> None:
        parts = [data[: len(data) // 2], data, None]
        raw = pl.DataFrame(
            {PARTITION: ["0"] * 3, OFFSET: [0, 1, 2], RAW: parts},
            schema={PARTITION: pl.String, OFFSET: pl.Int64, RAW: pl.Binary},
        )
        found = form.decode(raw)
        assert {*found.rows[OFFSET], *found.dead[OFFSET]} == {0, 1, 2} or found.rows.height + found.dead.height >= 1

    parse.__name__ = "decoder"
    return parse


def texts(judge: Callable[[str], object]) -> Parse:
    return lambda data: judge(data.decode(errors="surrogateescape"))


def kafka_rows(data: bytes) -> None:
    third = len(data) // 3
    cells = {
        "topic": "t",
        "partition": 0,
        "offset": data[:third],
        "value": data[third : 2 * third],
        "key:k": data[2 * third :],
    }
    kinds = {"topic": pa.string(), "partition": pa.int32()}
    arrays = {f"{PACKED}{name}": pa.array([each], kinds.get(name, pa.binary())) for name, each in cells.items()}
    unpacked([pa.RecordBatch.from_pydict(arrays)]).to_dicts()


def packed_records() -> bytes:
    values = [b"one", b"", b"three and more"]
    sizes = np.array([len(each) for each in values], np.int32).tobytes()
    offsets = np.arange(3, dtype=np.int64).tobytes()
    cell = sizes + b"".join(values)
    width = max(len(offsets), len(cell))
    return b"".join(each.ljust(width, b"\0") for each in (offsets, cell, cell))


def resealed(data: bytes) -> bytes:
    """A manifest whose seal fits, as an attacker would write it."""
    try:
        facts = json.loads(data)
        facts.pop("seal", None)
        seal = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return json.dumps({**facts, "seal": seal}).encode()
    except (ValueError, AttributeError, TypeError, RecursionError):
        return data


def files(folder: Path) -> dict[str, tuple[Parse, tuple[bytes, ...]]]:
    """Parsers of files."""
    point = saved(folder / "point")
    manifest = (point.folder / MANIFEST).read_bytes()

    def savepoint(data: bytes) -> None:
        (point.folder / MANIFEST).write_bytes(resealed(data))
        verify(load(point.folder))

    def story(data: bytes) -> None:
        (folder / "story.yaml").write_bytes(data)
        read_stories(folder / "story.yaml")

    def copies(data: bytes) -> None:
        (folder / COPIES).write_bytes(data)
        read_copies(folder)

    log = Log(folder / "table")
    log.folder.mkdir(parents=True)
    record = {"version": VERSION, "kind": "state", "columns": {}, "now": None, "epochs": {}, "ledger": {}, "gone": {}}
    record |= {"files": [{"path": "panes/a.parquet", "part": "panes", "rows": 1, "bytes": 1}]}

    def manifests(data: bytes) -> None:
        log.path(1).write_bytes(data)
        log.record(1)

    stories = tuple(path.read_bytes() for path in sorted(Path("tests/transcripts").rglob("*.yaml"))[:6])
    return {
        "savepoint manifests": (savepoint, (manifest,)),
        "stories": (story, stories),
        "copies of small files": (copies, (copy_line("l", "spark/offsets/0", b"v1") * 2,)),
        "manifests of folders": (manifests, (json.dumps(record).encode(),)),
    }


@cache
def formats() -> dict[str, tuple[Parse, tuple[bytes, ...]]]:
    """Parsers of records, and of schemas."""
    many = json.loads(json.dumps(AVRO_SCORE))
    many["fields"].append({"name": "more", "type": {"type": "array", "items": "int"}})
    columns = "team string, score long, at timestamp, ok boolean, price decimal(10,2), tags array<string>"
    row = b'{"team": "red", "score": 5, "at": "2024-05-01T12:00:00Z", "ok": true, "price": 1.5, "tags": ["a"]}'
    change = b'{"before": null, "after": {"id": 1, "team": "red"}, "op": "c", "ts_ms": 5, "source": {"ts_ms": 4}}'
    avro_text, proto_text = json.dumps(many), PROTO_SCORE
    json_text = (
        '{"type": "object", "properties": {"a": {"anyOf": [{"type": "string", "pattern": "a+"}, {"$ref": "#"}]}}}'
    )
    block = pack(Block({"rows": pl.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"]})}, {"turn": 3}))

    def compatible(kind: Kind, text: str) -> Callable[[str], object]:
        return lambda changed: [check(changed, [text], Level.FULL, kind), check(text, [changed], Level.FULL, kind)]

    return {
        "Avro in columns": (decoding(sl.avro(json.dumps(AVRO_SCORE))), (AVRO_RED, AVRO_BLUE)),
        "Avro in rows": (decoding(sl.avro(avro_text)), (AVRO_RED + b"\2\2\0", AVRO_BLUE + b"\0")),
        "Protobuf": (decoding(sl.protobuf(PROTO_SCORE)), (PROTO_RED, PROTO_BLUE)),
        "JSON": (decoding(sl.json(columns)), (row,)),
        "CSV": (decoding(sl.csv("team string, score long, at timestamp, ok boolean")), LINES),
        "Debezium": (decoding(sl.debezium("id long, team string")), (change, change.replace(b"null", b'{"id": 1}'))),
        "Avro schemas": (texts(compatible(Kind.AVRO, avro_text)), (avro_text.encode(),)),
        "JSON schemas": (texts(compatible(Kind.JSON, json_text)), (json_text.encode(),)),
        "Protobuf schemas": (texts(compatible(Kind.PROTOBUF, proto_text)), (proto_text.encode(),)),
        "packed rows of topics": (kafka_rows, (packed_records(),)),
        "state blocks": (lambda data: unpack(data, "here"), (block,)),
        "indexes of state": (lambda data: read_index({INDEX: data}), (write_index(Index()),)),
        "dead letters": (lambda data: from_json(data, "here"), (LETTER,)),
    }  # fmt: skip


def registry(folder: Path) -> Iterator[tuple[str, tuple[Parse, tuple[bytes, ...]]]]:
    store = Store(folder / "registry.sqlite")
    api = Api(store, check)

    def ask(data: bytes) -> None:
        method, _, rest = data.partition(b" ")
        target, _, body = rest.partition(b" ")
        status, _ = api.answer(method.decode("latin-1"), target.decode("latin-1"), body)
        assert status != 500

    body = json.dumps({"schema": json.dumps(AVRO_SCORE), "references": [{"name": "a", "subject": "b", "version": 1}]})
    seeds = (
        b"POST /subjects/a/versions " + body.encode(), b"GET /schemas/ids/1 ",
        b"GET /subjects/a/versions/1?deleted=true ",
        b'PUT /config/a {"compatibility": "FULL"}', b"DELETE /subjects/a?permanent=true ",
        b"GET /subjects?subjectPrefix=a ",
        b'POST /compatibility/subjects/a/versions/latest?verbose=true {"schema": "\\"int\\""}',
    )  # fmt: skip
    yield "requests to a registry", (ask, seeds)


NAMES = (
    *formats(), "savepoint manifests", "stories", "copies of small files", "manifests of folders",
    "requests to a registry",
)  # fmt: skip


def fuzz(name: str, folder: Path, seconds: float) -> None:
    parse, seeds = {**formats(), **files(folder), **dict(registry(folder))}[name]
    seed = random.SystemRandom().randrange(2**32)
    draw, tries = random.Random(seed), 0
    for each in seeds:
        with suppress(StrandlineError):
            parse(each)
    until = time.monotonic() + seconds
    while not tries or time.monotonic() < until:
        data, before = changed(draw, seeds), time.monotonic()
        tries += 1
        try:
            parse(data)
        except StrandlineError:
            pass
        except BaseException:  # noqa: BLE001 - a panic of Polars is no Exception
            pytest.fail(f"{name}, seed {seed}, try {tries}: {data!r}\n{traceback.format_exc()}")
        took = time.monotonic() - before
        assert took < 60, f"{name}, seed {seed}, try {tries}: {took:.0f} s for {data!r}"
    sys.stdout.write(f"{name}: {tries} inputs, seed {seed}\n")


@pytest.mark.parametrize("name", NAMES)
def test_a_parser_of_foreign_bytes_refuses_what_it_cannot_read(name: str, tmp_path: Path) -> None:
    fuzz(name, tmp_path, SMALL / len(NAMES))


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_a_parser_of_foreign_bytes_refuses_what_it_cannot_read_for_minutes(name: str, tmp_path: Path) -> None:
    fuzz(name, tmp_path, LONG / len(NAMES))
