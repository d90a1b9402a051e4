"""Redrive dead letters to a real topic: once, under their old keys, at whatever point the redrive is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka import Producer

import strandline as sl
from strandline.connectors.kafka import DeadTopic, Kafka, Security
from strandline.connectors.kafka.clients import Writer, admin_of, ends, reader, records_from
from strandline.connectors.kafka.dead_letters import TopicLetters
from strandline.connectors.kafka.redrive import LETTER, REDRIVEN
from strandline.errors import SetupError, SinkError
from strandline.letters.redrive import redrive
from strandline.letters.store import LetterStore, Redrive
from strandline.ports.ledger import LedgerEntry
from strandline.services.service import Service
from tests.contracts.test_letters import frame, letter

pytestmark = pytest.mark.services
pytest_plugins = ["strandline.testing.services"]

BAD = (b'{"team": ', b"\xff\xfe", b"", None)


def records(servers: str, topic: str, start: int = 0) -> list[Any]:
    with reader(servers, Security()) as consumer:
        return [*records_from(consumer, {topic: {"0": start}}, ends(admin_of(servers, Security()), [topic]))]


@pytest.fixture
def source(kafka: Service, new_topic: Callable[..., str]) -> Kafka:
    """A topic with bad records that have keys, headers and timestamps."""
    topic = new_topic(partitions=1)
    producer = Producer({"bootstrap.servers": kafka.address})
    for number, value in enumerate(BAD):
        headers: Any = [("trace", b"%d" % number)]
        producer.produce(topic, value, key=b"key %d" % number, headers=headers, timestamp=1_000 + number)
    assert producer.flush(30) == 0
    return sl.kafka(topic, servers=kafka.address, value=sl.json("team string"))


@pytest.fixture
def dead(kafka: Service, new_topic: Callable[..., str], source: Kafka) -> DeadTopic:
    """The letters of those records, in a topic."""
    ask = sl.dead_topic(new_topic(), servers=kafka.address)
    box = ask.open_letters("mine")
    box.put(frame(*letters(source)), LedgerEntry("mine", 1, 0, "digest"))
    box.close()
    return ask


def letters(source: Kafka, **known: Any) -> list[dict[str, Any]]:
    place = {"source": source.name, "source_partition": f"{source.topics[0]}-0"}
    return [letter(number, **{"raw": value, **place, **known}) for number, value in enumerate(BAD)]


def ids(*numbers: int) -> list[str]:
    return [letter(number)["id"] for number in numbers]


def test_a_record_is_redriven_unchanged_with_headers_that_name_the_redrive(source: Kafka, dead: DeadTopic) -> None:
    report = redrive(dead.letters(), {source.name: source}, ids(0, 1, 2, 3))
    assert list(report.sent) == ids(0, 1, 2, 3)
    assert not report.left
    found = records(source.servers, source.topics[0], len(BAD))
    assert [(each.value(), each.key(), each.timestamp()[1]) for each in found] == [
        (value, b"key %d" % number, 1_000 + number) for number, value in enumerate(BAD)
    ]
    for number, each in enumerate(found):
        headers = dict(each.headers())
        assert headers["trace"] == b"%d" % number
        assert headers[LETTER].decode() == letter(number)["id"]
        assert headers[REDRIVEN].decode() == dead.letters().read()["redrive"][0]
    assert dead.letters().read()["state"].to_list() == ["redriven"] * 4
    assert dead.letters().begun() is None
    assert not redrive(dead.letters(), {source.name: source}, ids(0, 1)).sent
    assert len(records(source.servers, source.topics[0])) == 2 * len(BAD)


def test_records_and_marks_are_one_transaction_if_the_letters_are_in_a_topic(
    source: Kafka, dead: DeadTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TopicLetters, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            redrive(dead.letters(), {source.name: source}, ids(1))
    assert dead.letters().read()["state"].to_list() == ["new", "redriven", "new", "new"]
    assert redrive(dead.letters(), {source.name: source}, []).completed == tuple(ids(1))
    assert len(records(source.servers, source.topics[0])) == len(BAD) + 1
    assert dead.letters().begun() is None


JOB = """
import strandline as sl

rows = sl.read(sl.kafka({topic!r}, servers={servers!r}, value=sl.json("team string")))
pipeline = rows.write(sl.sqlite({database!r}, table="panes"))
"""


@pytest.mark.parametrize("moment", ["R1", "R2", "R3"])
def test_a_killed_redrive_is_finished_by_the_next_and_nothing_arrives_twice(
    source: Kafka, tmp_path: Path, moment: str
) -> None:
    """A process killed before it sends, inside of its transaction, or before it marks.

    The letters are in a table, which shares no transaction with the topic.
    """
    store = table(source, tmp_path)
    job = tmp_path / "job.py"
    job.write_text(JOB.format(topic=source.topics[0], servers=source.servers, database=str(tmp_path / "some.db")))
    program = [sys.executable, "-c", "from strandline.cli.main import main; main()", "dlq", "redrive", str(job)]
    environment = {**os.environ, "STRANDLINE_CRASH": moment}
    dead = subprocess.run([*program, *ids(0, 2)], env=environment, start_new_session=True, check=False)
    assert dead.returncode == -signal.SIGKILL
    assert store.begun() is not None
    report = redrive(store, {source.name: source}, [])
    assert list(report.completed) == ids(0, 2)
    assert [each.value() for each in records(source.servers, source.topics[0], len(BAD))] == [BAD[0], BAD[2]]
    assert store.read()["state"].to_list() == ["redriven", "new", "redriven", "new"]


def table(source: Kafka, folder: Any, **known: Any) -> LetterStore:
    from tests.contracts.test_letters import Place, pipeline  # noqa: PLC0415

    place = Place(pipeline(folder, None))
    place.put(*letters(source, **known))
    store: LetterStore = place.store
    return store


def test_a_concurrent_second_redrive_fences_the_first(source: Kafka, tmp_path: Any) -> None:
    store = table(source, tmp_path)
    one = Redrive("one", (letter(0)["id"],), {source.name: source.end_positions(store.read())})
    first = Writer(source.servers, source.security, "strandline-redrive-one")
    second = source.redrive_records(store.read()[:1], one, None)
    assert list(second) == ids(0)
    with pytest.raises(SinkError, match="another process writes under this producer's transactional id"):
        first.write([{"topic": source.topics[0], "value": b"late"}])


def test_a_masked_letter_is_redriven_from_its_original_record(source: Kafka, tmp_path: Any) -> None:
    store = table(source, tmp_path, raw=None, masked="all")
    assert list(redrive(store, {source.name: source}, ids(0)).sent) == ids(0)
    assert records(source.servers, source.topics[0], len(BAD))[0].value() == BAD[0]
    gone = store.read().with_columns(pl.lit(10_000, pl.Int64).alias("source_offset"))
    why = "the letter's bytes are masked or cut, and its record is no longer in the topic"
    assert source.not_redrivable(gone) == dict.fromkeys(gone["id"], why)


def test_a_letter_whose_record_is_deleted_is_redriven_without_a_key(source: Kafka, tmp_path: Any) -> None:
    store = table(source, tmp_path)
    gone = store.read()[:1].with_columns(pl.lit(10_000, pl.Int64).alias("source_offset"))
    one = Redrive("gone", tuple(gone["id"]), {source.name: source.end_positions(gone)})
    assert source.redrive_records(gone, one, None) == one.letters
    (found,) = records(source.servers, source.topics[0], len(BAD))
    assert (found.value(), found.key()) == (BAD[0], None)


def test_a_letter_too_large_for_its_topic_is_stored_cut_and_redriven_whole(
    kafka: Service, new_topic: Callable[..., str], source: Kafka
) -> None:
    producer, whole = Producer({"bootstrap.servers": kafka.address}), b"\xff" * 5_000
    producer.produce(source.topics[0], whole, key=b"long")
    assert producer.flush(30) == 0
    ask = sl.dead_topic(new_topic(partitions=1, max_message_bytes="3000"), servers=kafka.address)
    place = {"source": source.name, "source_partition": f"{source.topics[0]}-0", "raw_length": len(whole)}
    box = ask.open_letters("mine")
    many = [letter(number, **place, raw=b"\xff" * 600) for number in range(3)]
    box.put(frame(*many, letter(len(BAD), **place, raw=whole)), LedgerEntry("mine", 1, 0, "digest"))
    box.close()
    kept = ask.letters().read().to_dicts()[-1]
    assert kept["masked"] == "cut"
    assert kept["raw_length"] == len(whole) > len(kept["raw"]) > 100
    assert list(redrive(ask.letters(), {source.name: source}, [kept["id"]]).sent) == [kept["id"]]
    assert records(source.servers, source.topics[0], len(BAD) + 1)[0].value() == whole
    assert ask.letters().read()["state"].to_list()[-1] == "redriven"


def test_a_driver_that_was_replaced_can_no_longer_write_letters(dead: DeadTopic) -> None:
    entry = LedgerEntry("theirs", 1, 7, "digest")
    older, newer = dead.open_letters("theirs"), dead.open_letters("theirs")
    with pytest.raises(SinkError, match="another process writes under this producer's transactional id"):
        older.put(frame(letter(50)), entry)
    newer.put(frame(letter(50)), entry)
    assert dead.letters().read().height == 5


def test_a_missing_topic_is_an_error_before_the_job_runs(kafka: Service) -> None:
    nowhere = sl.dead_topic("nowhere", servers=kafka.address)
    with pytest.raises(SetupError, match="there is no topic nowhere"):
        nowhere.open_letters("mine")
    with pytest.raises(SetupError, match="there is no topic nowhere"):
        nowhere.letters().read()
    assert ends(admin_of(kafka.address, Security()), ["nowhere"]) == {"nowhere": {}}
