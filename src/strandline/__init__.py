"""Strandline: the complete Dataflow model on Spark, from Python, with no event lost unnoticed.

This module defines every public name, and nothing else. Importing it loads neither Spark nor Polars; a name that needs
them loads them at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from strandline.errors import PlanError, RunError, StateError, StrandlineError
from strandline.model.aggregates import (
    UserAggregate,
    all_true,
    any_true,
    approx_count_distinct,
    argmax,
    argmin,
    bit_and,
    bit_or,
    bit_xor,
    collect,
    count,
    count_distinct,
    first,
    last,
    max,  # noqa: A004 - the model's own word
    mean,
    min,  # noqa: A004 - the model's own word
    quantile,
    stddev,
    string_agg,
    sum,  # noqa: A004 - the model's own word
    top_k,
    variance,
)
from strandline.model.arguments import checked
from strandline.model.elements import Duration, Timestamp
from strandline.model.evictors import keep_delta, keep_last, keep_within
from strandline.model.panes import Accumulation, Timing
from strandline.model.triggers import (
    after_count,
    after_event_time,
    after_processing_time,
    after_watermark,
    all_of,
    every,
    first_of,
    in_sequence,
    never,
    or_finally,
    repeatedly,
    when,
)
from strandline.model.watermarks import bounded, by_clock, from_source, monotone, percentile
from strandline.model.windows import count_window, cumulating, custom, everything, session, sliding, tumbling
from strandline.plan.endpoints import Delivery, Source, dead_table
from strandline.plan.nodes import Root
from strandline.plan.pipeline import Elements, Panes, Pipeline, join_tables, together, union
from strandline.plan.pipeline import read as _read

if TYPE_CHECKING:
    from strandline.connectors.console import console
    from strandline.connectors.dataframe_source import frame
    from strandline.connectors.dead_letter_files import dead_files
    from strandline.connectors.delta import delta
    from strandline.connectors.delta.lookup import lookup_delta
    from strandline.connectors.delta.source import delta_table
    from strandline.connectors.discard import discard
    from strandline.connectors.files import compact, files, folder, manifested_files, read_manifested
    from strandline.connectors.files.lookup import lookup_parquet
    from strandline.connectors.function_lookup import lookup_function
    from strandline.connectors.function_sink import call
    from strandline.connectors.generated import generator
    from strandline.connectors.http_lookup import lookup_http
    from strandline.connectors.kafka import dead_topic, kafka, kafka_topic, sasl, tls
    from strandline.connectors.scores import scores
    from strandline.connectors.sql.duckdb import duckdb
    from strandline.connectors.sql.lookup_duckdb import lookup_duckdb
    from strandline.connectors.sql.lookup_postgres import lookup_postgres
    from strandline.connectors.sql.lookup_sqlite import lookup_sqlite
    from strandline.connectors.sql.postgres import postgres
    from strandline.connectors.sql.sqlite import sqlite
    from strandline.connectors.valkey import lookup_valkey, valkey
    from strandline.connectors.webhook import webhook
    from strandline.formats.avro.codec import avro
    from strandline.formats.csv import csv
    from strandline.formats.debezium import debezium
    from strandline.formats.json.codec import json
    from strandline.formats.json.inference import infer_json
    from strandline.formats.protobuf.codec import protobuf
    from strandline.formats.registry.client import registry
    from strandline.formats.secrets import secret
    from strandline.formats.text import raw, text
    from strandline.spark.delivery.dead_letter_limit import failure_budget

discarding = Accumulation.DISCARDING
accumulating = Accumulation.ACCUMULATING
retracting = Accumulation.RETRACTING

_LAZY_NAMES = {
    "avro": "strandline.formats.avro.codec",
    "call": "strandline.connectors.function_sink",
    "compact": "strandline.connectors.files",
    "console": "strandline.connectors.console",
    "csv": "strandline.formats.csv",
    "dead_files": "strandline.connectors.dead_letter_files",
    "dead_topic": "strandline.connectors.kafka",
    "debezium": "strandline.formats.debezium",
    "delta": "strandline.connectors.delta",
    "delta_table": "strandline.connectors.delta.source",
    "discard": "strandline.connectors.discard",
    "duckdb": "strandline.connectors.sql.duckdb",
    "failure_budget": "strandline.spark.delivery.dead_letter_limit",
    "files": "strandline.connectors.files",
    "folder": "strandline.connectors.files",
    "frame": "strandline.connectors.dataframe_source",
    "generator": "strandline.connectors.generated",
    "infer_json": "strandline.formats.json.inference",
    "json": "strandline.formats.json.codec",
    "kafka": "strandline.connectors.kafka",
    "kafka_topic": "strandline.connectors.kafka",
    "lookup_delta": "strandline.connectors.delta.lookup",
    "lookup_duckdb": "strandline.connectors.sql.lookup_duckdb",
    "lookup_function": "strandline.connectors.function_lookup",
    "lookup_http": "strandline.connectors.http_lookup",
    "lookup_parquet": "strandline.connectors.files.lookup",
    "lookup_postgres": "strandline.connectors.sql.lookup_postgres",
    "lookup_sqlite": "strandline.connectors.sql.lookup_sqlite",
    "lookup_valkey": "strandline.connectors.valkey",
    "manifested_files": "strandline.connectors.files",
    "postgres": "strandline.connectors.sql.postgres",
    "protobuf": "strandline.formats.protobuf.codec",
    "raw": "strandline.formats.text",
    "read_manifested": "strandline.connectors.files",
    "registry": "strandline.formats.registry.client",
    "sasl": "strandline.connectors.kafka",
    "scores": "strandline.connectors.scores",
    "secret": "strandline.formats.secrets",
    "sqlite": "strandline.connectors.sql.sqlite",
    "text": "strandline.formats.text",
    "tls": "strandline.connectors.kafka",
    "valkey": "strandline.connectors.valkey",
    "webhook": "strandline.connectors.webhook",
}


class _SparkRunner:
    """Run pipelines on Spark, which is loaded when the first one runs."""

    def run(self, root: Root, spark: Any = None, **options: Any) -> Any:
        return import_module("strandline.observe.run").run(root, spark, **options)

    def to_dataframe(self, root: Root, spark: Any, **options: Any) -> Any:
        return import_module("strandline.spark.to_dataframe").to_dataframe(root, spark, **options)


@checked
def read(source: Source) -> Elements:
    """Start a pipeline from a source."""
    return _read(source, _SparkRunner())


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("strandline")
    if name in _LAZY_NAMES:
        return getattr(import_module(_LAZY_NAMES[name]), name)
    raise AttributeError(f"strandline has no {name!r}")


__all__ = [
    "Accumulation", "Delivery", "Duration", "Elements", "Panes", "Pipeline", "PlanError", "RunError", "StateError",
    "StrandlineError", "Timestamp", "Timing", "UserAggregate", "accumulating", "after_count", "after_event_time",
    "after_processing_time", "after_watermark", "all_of", "all_true", "any_true", "approx_count_distinct", "argmax",
    "argmin", "avro", "bit_and", "bit_or", "bit_xor", "bounded", "by_clock", "call", "collect", "compact", "console",
    "count", "count_distinct", "count_window", "csv", "cumulating", "custom", "dead_files", "dead_table", "dead_topic",
    "debezium", "delta", "delta_table", "discard", "discarding", "duckdb", "every", "everything", "failure_budget",
    "files", "first", "first_of", "folder", "frame", "from_source", "generator", "in_sequence", "infer_json",
    "join_tables", "json", "kafka", "kafka_topic", "keep_delta", "keep_last", "keep_within", "last", "lookup_delta",
    "lookup_duckdb", "lookup_function", "lookup_http", "lookup_parquet", "lookup_postgres", "lookup_sqlite",
    "lookup_valkey", "manifested_files", "max", "mean", "min", "monotone", "never", "or_finally", "percentile",
    "postgres", "protobuf", "quantile", "raw", "read", "read_manifested", "registry", "repeatedly", "retracting",
    "sasl", "scores", "secret", "session", "sliding", "sqlite", "stddev", "string_agg", "sum", "text", "tls",
    "together", "top_k", "tumbling", "union", "valkey", "variance", "webhook", "when",
]  # fmt: skip
