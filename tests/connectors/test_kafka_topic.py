"""The Kafka sink where it differs from others: records, tombstones, fenced producers, and rejected records."""

import json
import logging
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka import KafkaError, KafkaException

import strandline as sl
from strandline.connectors.kafka import topic_admin
from strandline.connectors.kafka.clients import Writer
from strandline.connectors.kafka.encode_rows import encode_or_refuse, in_format
from strandline.connectors.kafka.security import Security
from strandline.connectors.kafka.topic_admin import Found
from strandline.errors import Fenced, InvalidStep, PlanError, RunError, SetupError, SinkError, SinkUnavailable
from strandline.formats.json.write_rows import as_json
from strandline.kernel.blocks.block import END, OFFSET, PARTITION
from strandline.kernel.watermarks import FOREVER
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.codecs import RAW
from strandline.ports.dead_letter_masking import with_letters
from strandline.ports.ledger import LedgerEntry, Written
from strandline.ports.sinks import OpenSink
from strandline.services.service import Service
from strandline.services.topics import Topic, create_topics
from strandline.spark.delivery.deliver import Retry, deliver
from tests.contracts.sinks import pane, panes
from tests.contracts.stores import KafkaStore, records_of

pytest_plugins = ["strandline.testing.services"]

PROTO = 'syntax = "proto3"; message Total { string team = 1; int64 total = 2; int64 window_start = 3; }'


@pytest.fixture
def store(kafka: Service) -> KafkaStore:
    return KafkaStore(kafka.address)


def opened(store: KafkaStore, **asked: Any) -> OpenSink:
    definition = store.sink(**asked)
    return definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))


def entry(sink: OpenSink, batch: int = 0) -> LedgerEntry:
    return LedgerEntry("mine", sink.claim("mine"), batch, "range")


def frame(*rows: Any) -> pl.DataFrame:
    found = panes(*rows).panes
    assert found is not None
    return found


@pytest.mark.services
def test_records_carry_pane_metadata_and_tombstones_retract(store: KafkaStore) -> None:
    sink = opened(store, mode="upsert", value=sl.json("team string, total long, window_end timestamp"))
    once = entry(sink)
    sink.commit(panes(pane("red", 5), pane("blue", 1)), once)
    sink.commit(panes(pane("red", 5, taken_back=True)), LedgerEntry("mine", once.epoch, 1, "next"))
    sink.close()
    red, blue, gone = store.records()
    key = {"team": "red", "window_start": "1970-01-01T00:00:00.000Z", "window_end": "1970-01-01T00:00:10.000Z"}
    assert json.loads(red.key()) == key
    assert json.loads(red.value()) == {"team": "red", "total": 5, "window_end": "1970-01-01T00:00:10.000000Z"}
    result = [
        ("timing", b"early"),
        ("pane_index", b"0"),
        ("retraction", b"false"),
        ("strandline-batch", b"mine/0/range"),
    ]
    assert red.headers() == blue.headers() == result
    assert (gone.key(), gone.value(), dict(gone.headers())["retraction"]) == (red.key(), None, b"true")


@pytest.mark.services
def test_records_that_the_topic_rejects_are_dead_letters_and_the_others_are_written_once(
    store: KafkaStore, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(partitions=1, cleanup_policy="compact", max_message_bytes="1500")
    definition = sl.kafka_topic(topic, servers=store.servers, key=sl.text("team"))
    sink = definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))
    rows = [
        pane("x" * 2_000 if number == 7 else None if number in (3, 4) else f"{number}", number) for number in range(9)
    ]
    once = entry(sink)
    assert sink.commit(panes(*rows), once) == Written(refused=3)
    assert not sink.commit(panes(*rows), once).fresh
    sink.close()
    letters = definition.letters().read()
    assert sorted(json.loads(raw)["total"] for raw in letters["raw"]) == [3, 4, 7]
    assert set(letters["reason"]) == {"sink_refused"}
    content = dict(zip([json.loads(raw)["total"] for raw in letters["raw"]], letters["detail"], strict=True))
    assert "accepts no record without a key" in content[3]
    assert "message size too large" in content[7]
    written = [json.loads(record.value())["total"] for record in records_of(store.servers, topic)]
    assert written == [0, 1, 2, 5, 6, 8]
    elsewhere = sl.dead_files(tmp_path)
    output = Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",), elsewhere)
    other = with_letters(definition.open(output), output, "mine")
    assert other.commit(panes(pane(None, 10)), entry(other, 1)).refused == 1
    other.close()
    assert [json.loads(raw)["total"] for raw in elsewhere.letters().read()["raw"]] == [10]
    assert definition.letters().read().height == 3


@pytest.mark.services
@pytest.mark.parametrize("content", [KafkaError._TIMED_OUT, KafkaError.UNKNOWN])
def test_a_commit_with_a_lost_answer_is_found_in_the_ledger(
    store: KafkaStore, monkeypatch: pytest.MonkeyPatch, content: int
) -> None:
    sink = opened(store)
    once, commit = entry(sink), Writer._commit

    def lost(writer: Writer) -> None:
        commit(writer)
        raise KafkaException(KafkaError(content))

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "_commit", lost)
        with pytest.raises(SinkUnavailable, match="the broker does not respond"):
            sink.commit(panes(pane("red", 5)), once)
    assert not sink.commit(panes(pane("red", 5)), once).fresh
    sink.close()
    assert [row["total"] for row in store.read()] == [5]


@pytest.mark.services
def test_a_killed_drivers_open_transaction_is_aborted_by_the_next_driver(store: KafkaStore) -> None:
    sink = opened(store)
    once = entry(sink)
    killed = Writer(store.servers, Security(), f"strandline-mine-0-{store.topic('totals')}")
    killed._begin([{"topic": store.topic("totals"), "value": b"never committed"}], [])
    assert sink.commit(panes(pane("red", 5)), once).fresh
    with pytest.raises(KafkaException, match="fenced"):
        killed._commit()
    sink.close()
    assert [row["total"] for row in store.read()] == [5]


@pytest.mark.services
def test_a_batch_behind_another_jobs_open_transaction_waits_and_is_not_written_twice(store: KafkaStore) -> None:
    sink = opened(store)
    once = entry(sink)
    other = Writer(store.servers, Security(), "theirs")
    other._begin([sink._ledger.claim("theirs", 1)], [])  # type: ignore[attr-defined]
    ends_soon = threading.Timer(0.3, other._commit)
    ends_soon.start()
    assert [sink.commit(panes(pane("red", 5)), once).fresh for _ in range(2)] == [True, False]
    assert ends_soon.finished.is_set()
    sink.close()
    assert [row["total"] for row in store.read()] == [5]


@pytest.mark.services
def test_another_process_with_the_jobs_transactional_id_ends_the_job_after_three_attempts(
    store: KafkaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(store)
    once, begin, strangers = entry(sink), Writer._begin, list[Writer]()

    def pushed(writer: Writer, *given: Any) -> None:
        begin(writer, *given)
        strangers.append(Writer(store.servers, Security(), writer._name))

    monkeypatch.setattr(Writer, "_begin", pushed)
    heard: list[RunError | None] = []
    with pytest.raises(Fenced, match="another process writes under this job's transactional id"):
        deliver(sink, Delivery.EXACTLY_ONCE, panes(pane("red", 5)), once, Retry(report=heard.append, shortest=0.01))
    assert len(heard) == len(strangers) - 1 == 2
    sink.close()
    assert store.read() == []


@pytest.mark.services
def test_a_broker_that_was_killed_is_waited_for_and_nothing_is_lost_or_repeated(
    kafka: Service, store: KafkaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.connectors.kafka.clients.FIRST_ANSWER_WITHIN_SECONDS", 0.5)
    sink = opened(store)
    first = entry(sink)
    assert sink.commit(panes(pane("red", 5)), first).fresh
    # A broker answers before it has marked the end of a transaction in every partition.
    assert sink.latest("mine") is not None
    assert [row["total"] for row in store.read()] == [5]
    kafka.kill()
    heard: list[RunError | None] = []
    back = threading.Event()

    def hears(problem: RunError | None) -> None:
        heard.append(problem)
        if not back.is_set():
            back.set()
            kafka.start()
            monkeypatch.undo()  # on a busy machine half a second is no time for a broker that has just started

    second = LedgerEntry("mine", first.epoch, 1, "next")
    assert deliver(sink, Delivery.EXACTLY_ONCE, panes(pane("red", 6, 1)), second, Retry(hears, shortest=0.1)).fresh  # type: ignore[union-attr]
    assert isinstance(heard[0], SinkUnavailable)
    assert heard[-1] is None
    sink.close()
    assert [row["total"] for row in store.read()] == [5, 6]


@pytest.mark.services
def test_missing_topics_and_ledgers_with_retention_are_refused_before_the_job_runs(
    kafka: Service, new_topic: Callable[..., str]
) -> None:
    nowhere = sl.kafka_topic("nowhere", servers=kafka.address)
    with pytest.raises(SetupError, match="there is no topic nowhere"):
        nowhere.open(Deliver(0, nowhere, Delivery.EXACTLY_ONCE, None))
    forgets = sl.kafka_topic(new_topic(), servers=kafka.address, ledger=new_topic())
    with pytest.raises(SetupError, match="deletes old records"):
        forgets.open(Deliver(0, forgets, Delivery.EXACTLY_ONCE, None))


@pytest.mark.services
def test_a_missing_topic_of_a_source_is_refused_before_spark_starts_with_the_nearest_one(
    kafka: Service, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    source = partial(sl.kafka, servers=[kafka.address], value=sl.json("team string, at timestamp"))
    source(topic).refuse_missing()
    source(f"{topic[:-1]}.*", pattern=True).refuse_missing()
    with pytest.raises(SetupError, match=f"there is no topic {topic}s at") as refused:
        source(topic, f"{topic}s").refuse_missing()
    assert topic in refused.value.hint


def test_the_topics_of_an_unreachable_broker_are_not_refused() -> None:
    sl.kafka("scores", servers="127.0.0.1:1", value=sl.json("team string")).refuse_missing()


def test_an_unreachable_broker_is_reported_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_admin, "FIRST_ANSWER_WITHIN_SECONDS", 0.2)
    definition = sl.kafka_topic("totals", servers="127.0.0.1:1")
    with pytest.raises(SinkUnavailable, match="Kafka at 127.0.0.1:1 cannot be reached"):
        definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, None))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"options": {"acks": "1"}}, "acks=1 would count"),
        ({"options": {"sasl.jaas.config": "x"}}, "not an option of this sink"),
        ({"mode": "replace"}, "unknown mode"),
        ({"key": []}, "the key has no columns"),
        ({"late": "totals"}, "two of the sink's topics"),
        ({"value": "json"}, "cannot take 'json' as value"),
        ({"topic": ""}, "has no name"),
    ],
)
def test_invalid_topic_settings_are_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        sl.kafka_topic(**{"topic": "totals", "servers": "127.0.0.1:1", **asked})


def test_an_upsert_key_without_the_window_is_refused() -> None:
    definition = sl.kafka_topic("totals", servers="127.0.0.1:1", mode="upsert", key=["team"])
    with pytest.raises(InvalidStep, match="without the window"):
        definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))


@pytest.mark.parametrize("form", [sl.avro("team string, total long, window_start timestamp"), sl.protobuf(PROTO)])
def test_a_format_writes_its_columns_and_reads_them_back(form: Any) -> None:
    written = in_format(frame(pane("red", 5), pane("blue", 6, start=10_000)), 0, form, "it")
    raw = pl.DataFrame({PARTITION: ["0", "0"], OFFSET: [0, 1], RAW: written})
    rows = form.decode(raw).rows
    assert rows["team"].to_list() == ["red", "blue"]
    assert rows["total"].to_list() == [5, 6]
    assert rows["window_start"].to_list() in (
        [0, 10_000],
        [datetime(1970, 1, 1, 0, 0, at, tzinfo=UTC) for at in (0, 10)],
    )


def test_only_the_row_that_does_not_fit_its_format_is_a_dead_letter() -> None:
    form = sl.avro('{"type": "record", "name": "T", "fields": [{"name": "team", "type": "string"}]}')
    rows = frame(*(pane(None if number == 5 else f"{number}", number) for number in range(9)))
    fine, values, refused = encode_or_refuse(rows, lambda some: in_format(some, 0, form, "it"), 0)
    assert fine["total"].to_list() == [0, 1, 2, 3, 4, 6, 7, 8]
    assert len(values) == 8
    assert [(each.row["total"], "does not fit its Avro schema" in each.detail) for each in refused] == [(5, True)]
    with pytest.raises(SinkError, match="needs the columns club, which the rows do not have"):
        in_format(rows, 0, sl.json("club string"), "it")


def test_non_finite_numbers_and_extreme_times_are_written_as_text() -> None:
    odd = frame(*({**pane("red", 0), "total": each, "each": [1, 2]} for each in (float("nan"), float("inf"), 1.5)))
    facts = [json.loads(each) for each in as_json(odd.with_columns(pl.lit(FOREVER).alias(END)), 0)]
    assert [(each["total"], each["each"], each["window_end"]) for each in facts] == [
        ("NaN", [1, 2], "infinity"),
        ("Infinity", [1, 2], "infinity"),
        (1.5, [1, 2], "infinity"),
    ]


def test_topics_with_weak_replication_are_warned_of_once_except_on_loopback(caplog: pytest.LogCaptureFixture) -> None:
    weak, strong = Found(1, 1, 1, 1_000, "delete"), Found(1, 3, 2, 1_000, "delete")
    with caplog.at_level(logging.WARNING, "strandline.kafka"):
        topic_admin._warn("127.0.0.1:9092,localhost:9093,[::1]:9094", {"weak": weak})
        for _ in range(2):
            topic_admin._warn("broker.example:9092", {"weak": weak, "strong": strong})
    (record,) = caplog.records
    assert "weak" in record.getMessage()


@pytest.mark.services
def test_the_record_size_limit_is_the_largest_of_all_topics(kafka: Service) -> None:
    usual, short = (f"longest-{name}-{uuid.uuid4().hex}" for name in ("usual", "short"))
    create_topics(kafka.address, Topic(usual, 1), Topic(short, 1, {"max.message.bytes": "5000"}))
    form = sl.json("team string")
    assert sl.kafka(short, servers=kafka.address, value=form).longest() == 5_000
    assert sl.kafka(usual, short, servers=kafka.address, value=form).longest() == 1_048_588
    assert sl.kafka("no-such-topic", servers=kafka.address, value=form).longest() is None
    assert sl.kafka("longest-.*", servers=kafka.address, value=form, pattern=True).longest() is None
