"""The Kafka source: options for Spark's connector, secrets, and its identity for checkpoints."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

import strandline as sl
from strandline.connectors.kafka import Kafka
from strandline.errors import InvalidSecret, InvalidStep
from strandline.plan.nodes import Read, fingerprint

VALUE = sl.json("team string, score long, at timestamp")


def source(**options: object) -> Kafka:
    return sl.kafka("scores", servers="localhost:9092", value=VALUE, **options)  # type: ignore[arg-type]


def test_only_committed_records_are_read_and_data_loss_stops_the_job_by_default() -> None:
    asked = source()._options()
    assert asked["kafka.isolation.level"] == "read_committed"
    assert asked["failOnDataLoss"] == "true"
    assert source(on_lost="continue")._options()["failOnDataLoss"] == "false"


@pytest.mark.parametrize(
    ("starting", "option", "value"),
    [
        ("earliest", "startingOffsets", "earliest"),
        ("latest", "startingOffsets", "latest"),
        ({"scores": {0: 17, 1: 4}}, "startingOffsets", '{"scores": {"0": 17, "1": 4}}'),
        (datetime(2024, 5, 1, tzinfo=UTC), "startingTimestamp", "1714521600000"),
    ],
)
def test_it_starts_at_an_end_at_offsets_or_at_a_time(starting: object, option: str, value: str) -> None:
    assert source(starting=starting)._options()[option] == value


def test_several_topics_or_a_pattern() -> None:
    several = sl.kafka("a", "b", servers="s", value=VALUE)._options()
    assert several["subscribe"] == "a,b"
    assert sl.kafka("scores.*", servers="s", value=VALUE, pattern=True)._options()["subscribePattern"] == "scores.*"


def test_record_metadata_can_be_columns() -> None:
    found = source(metadata={"sent": "timestamp", "whose": "key", "extra": "headers"})
    assert found.types["sent"] == "timestamp"
    assert found.types["whose"] == "binary"
    assert found._options()["includeHeaders"] == "true"
    assert "includeHeaders" not in source()._options()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metadata": {"sent": "time"}}, "unknown metadata field 'time'"),
        ({"metadata": {"score": "offset"}}, "is already in the value"),
        ({"metadata": {"offset": "offset"}}, "the column name 'offset' is reserved"),
        ({"on_lost": "panic"}, "unknown on_lost 'panic'"),
        ({"starting": "yesterday"}, "cannot start at 'yesterday'"),
        ({"records_per_batch": 0}, "records_per_batch is 0"),
    ],
)
def test_invalid_options_are_refused_with_the_valid_ones(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidStep, match=message) as refused:
        source(**options)
    assert refused.value.hint


def test_a_batch_is_bounded_by_default() -> None:
    assert source()._options()["maxOffsetsPerTrigger"] == "1000000"
    assert "maxOffsetsPerTrigger" not in source(records_per_batch=None)._options()


def test_records_above_the_size_limit_are_cut_where_that_saves_memory() -> None:
    kept, size = source()._value()
    assert kept == "if(length(value) > 16777216, substring(value, 1, 65536), value) as value"
    assert size == "if(length(value) > 16777216, length(value), null) as `@size`"
    assert replace(source(), value=sl.raw(largest=100))._value() == ["value"]


def test_without_a_topic_it_is_refused() -> None:
    with pytest.raises(InvalidStep, match="one or more topics"):
        sl.kafka(servers="s", value=VALUE)


def test_servers_speed_and_password_do_not_change_the_source_for_a_checkpoint() -> None:
    first = source()
    moved = replace(first, servers="elsewhere:9092", records_per_batch=5, group="mine", security=sl.tls())
    assert fingerprint(Read(first)) == fingerprint(Read(moved))
    assert fingerprint(Read(first)) != fingerprint(Read(replace(first, topics=("other",))))
    assert first != moved


def test_partitions_are_named_by_topic_and_number_idle_ones_too() -> None:
    assert source().partitions_at({"scores": {"0": 5, "1": 0}}) == ("scores-0", "scores-1")


def test_a_password_is_a_reference_that_is_resolved_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", 'hunter"2')
    given = sl.sasl("SCRAM-SHA-512", user="me", password="env:KAFKA_PASSWORD")
    secured = source(security=given)
    assert 'username="me" password="hunter\\"2";' in secured._options()["kafka.sasl.jaas.config"]
    assert given.to_librdkafka()["sasl.password"] == 'hunter"2'
    assert "hunter" not in repr(secured)
    assert "hunter" not in sl.read(secured).select("team").write(sl.discard()).explain()
    with pytest.raises(InvalidSecret):
        sl.sasl("PLAIN", user="me", password="hunter2")


def test_tls_takes_files_in_one_format_for_both_clients() -> None:
    given = sl.tls(authority="ca.pem", certificate="me.pem")
    assert given.to_java() == {
        "security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem",
        "ssl.keystore.type": "PEM", "ssl.keystore.location": "me.pem",
    }  # fmt: skip
    assert given.to_librdkafka()["ssl.ca.location"] == "ca.pem"


@pytest.mark.parametrize(("mechanism", "url"), [("OAUTHBEARER", None), ("PLAIN", "https://tokens"), ("KERBEROS", None)])
def test_an_incomplete_mechanism_is_refused(mechanism: str, url: str | None) -> None:
    with pytest.raises(InvalidStep):
        sl.sasl(mechanism, user="me", password="env:P", token_url=url)
