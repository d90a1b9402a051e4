"""Measure decoding: the score record in each format, in batches, in rows per CPU second.

No Spark and no disk: one process, one thread, the best of five. fastavro's reader is measured too.

usage: python -m benchmarks.formats [ROWS]
"""

import io
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import fastavro
import polars as pl

import strandline as sl
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.ports.codecs import RAW, Decoder

DDL: Final = "team string, user string, score long, at timestamp"
AVRO: Final = {
    "type": "record",
    "name": "Score",
    "fields": [
        {"name": "team", "type": "string"},
        {"name": "user", "type": "string"},
        {"name": "score", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
PROTO: Final = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Score { string team = 1; string user = 2; int64 score = 3; google.protobuf.Timestamp at = 4; }
"""
ROUNDS: Final = 5


def scores(count: int) -> pl.DataFrame:
    """Generate scores without faults."""
    draw = random.Random(7)  # noqa: S311 - the same scores every time
    teams = ("amber", "blue", "coral", "jade", "red")
    return pl.DataFrame(
        {
            "team": [draw.choice(teams) for _ in range(count)],
            "user": [f"user-{draw.randrange(200)}" for _ in range(count)],
            "score": [draw.randrange(1, 10) for _ in range(count)],
            "at": pl.Series(range(count)) * 7 + 1_714_564_800_000,
        }
    ).with_columns(pl.col("at").cast(pl.Datetime("ms", "UTC")).cast(pl.Datetime("us", "UTC")))


def raw(values: Sequence[bytes]) -> pl.DataFrame:
    """Wrap records as a source delivers them."""
    columns = {PARTITION: ["0"] * len(values), OFFSET: list(range(len(values))), RAW: values}
    return pl.DataFrame(columns, schema={PARTITION: pl.String, OFFSET: pl.Int64, RAW: pl.Binary})


def measure(name: str, count: int, work: Callable[[], object]) -> None:
    """Print the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    print(f"{name:32} {count / best / 1e6:6.2f} million rows a CPU second")


def decoding(decoder: Decoder, values: Sequence[bytes]) -> Callable[[], object]:
    """Decode the batch and check that there are no dead letters."""
    frame = raw(values)

    def work() -> None:
        if decoder.decode(frame).rows.height != len(values):
            raise SystemExit(f"{decoder}: some records were not read")

    return work


def envelopes(rows: pl.DataFrame) -> list[bytes]:
    """Encode these rows as Debezium inserts."""
    plain = rows.with_columns(pl.col("at").dt.timestamp("ms")).to_dicts()
    return [
        json.dumps({"before": None, "after": row, "op": "c", "source": {"ts_ms": row["at"]}}).encode() for row in plain
    ]


def main(arguments: Sequence[str]) -> None:
    count = int(arguments[0]) if arguments else 200_000
    rows = scores(count)
    forms: dict[str, Any] = {
        "JSON": sl.json(DDL),
        "Avro": sl.avro(json.dumps(AVRO)),
        "Protobuf": sl.protobuf(PROTO),
        "CSV": sl.csv(DDL),
    }
    for name, form in forms.items():
        measure(name, count, decoding(form, form.encode(rows).to_list()))
    measure("Debezium", count, decoding(sl.debezium(DDL), envelopes(rows)))
    values = forms["Avro"].encode(rows).to_list()
    parsed = fastavro.parse_schema(AVRO)
    measure(
        "Avro by fastavro, to dicts only",
        count,
        lambda: [fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in values],
    )


if __name__ == "__main__":
    main(sys.argv[1:])
