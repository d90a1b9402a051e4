"""`strandline advise`: samples of files, topics and pipelines."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import strandline as sl
from strandline.advise import capacity
from strandline.formats.registry.subjects import Kind, Schema
from strandline.services.service import Service
from tests.advise.made import START, stream
from tests.cli.test_main import run

pytest_plugins = ["strandline.testing.services"]


@pytest.fixture(autouse=True)
def _short_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "ENOUGH", 2_000)


OPTIONS = ("--time", "at", "--key", "key", "--partition", "part")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same stream as two Parquet files, as JSON lines and as CSV."""
    home = tmp_path_factory.mktemp("data")
    frame = stream(seconds=60)
    (home / "parquet").mkdir()
    frame[: frame.height // 2].write_parquet(home / "parquet" / "1.parquet")
    frame[frame.height // 2 :].write_parquet(home / "parquet" / "2.parquet")
    (home / "parquet" / "_SUCCESS").touch()
    frame.with_columns(pl.col("at", "came").dt.to_string("iso:strict")).write_ndjson(home / "lines.jsonl")
    frame.write_csv(home / "rows.csv")
    return home


@pytest.mark.slow
@pytest.mark.parametrize("source", ["parquet", "lines.jsonl", "rows.csv"])
def test_files_of_every_format_give_the_same_advice(
    folder: Path, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("advise", str(folder / source), *OPTIONS, "--arrival", "came", "--freshness", "1m", "--json") == 0
    output = json.loads(capsys.readouterr().out)
    rows = stream(seconds=60).height
    assert output["rows"] == rows
    assert output["lateness"]["waits"][1]["share"] == 0.99
    assert output["verdict"]["way"] == "stream"
    assert output["keys"]["many"] == 50
    assert "sl.files(" in output["pipeline"]
    assert output["settings"]["delay"] >= output["lateness"]["waits"][0]["delay"]


def test_advice_is_printed_and_plotted(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "curve.svg"
    assert run("advise", str(folder / "parquet"), *OPTIONS, "--freshness", "2h", "--plot", str(picture)) == 0
    output = capsys.readouterr().out
    assert output.startswith("batch every hour: a plain batch job is enough")
    for title in ("sample", "disorder", "clocks", "partitions", "keys", "rate", "a pipeline to start with"):
        assert f"\n{title}" in output
    assert ET.parse(picture).getroot().tag.endswith("svg")


def test_code_to_paste_is_not_wrapped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert run("advise", str(folder / "parquet"), *OPTIONS, "--freshness", "1m") == 0
    code = capsys.readouterr().out.partition("a pipeline to start with:\n")[2].partition("\n$ ")[0]
    assert any(len(line) > 40 for line in code.splitlines())
    compile(code, "code", "exec")


def test_only_the_last_rows_are_sampled(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("advise", str(folder / "parquet"), *OPTIONS, "--sample", "500", "--json") == 0
    output = json.loads(capsys.readouterr().out)
    assert output["rows"] == 500
    assert "1 of 2 files were read" in output["notes"][0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere", "--time", "at"), "there is nothing at nowhere"),
        (("{folder}/parquet", "--time", "when"), "there is no column 'when'"),
        (("{folder}/parquet", "--time", "at", "--plot", "curve.png"), "is not an SVG file"),
        (("{folder}/parquet", "--time", "at", "--freshness", "soon"), "is not a length of time"),
        (("kafka:t", "--time", "at", "--partition", "p"), "a topic has partitions of its own"),
        (("{folder}/empty", "--time", "at"), "can be read"),
        (("{folder}/torn.parquet", "--time", "at"), "cannot be read as parquet"),
    ],
)
def test_an_invalid_source_is_refused(
    words: tuple[str, ...], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "torn.parquet").write_bytes(b"PAR1 torn")
    assert run("advise", *(word.format(folder=folder) for word in words)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.services
def test_the_end_of_a_topic_is_sampled_with_the_brokers_timestamps(
    kafka: Service, new_topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra

    topic = new_topic(partitions=3, message_timestamp_type="CreateTime")
    producer = Producer({"bootstrap.servers": kafka.address})
    for number in range(600):
        at = START + 100 * number - (5_000 if number % 10 == 0 else 0)
        value = (
            b"no JSON" if number == 7 else json.dumps({"at": at, "team": f"t{number % 3}", "more": {"n": 1}}).encode()
        )
        came = START + 100 * number + 40
        producer.produce(topic, value, key=f"k{number % 4}", partition=number % 2, timestamp=came)
    assert producer.flush(30) == 0
    options = ("--bootstrap", kafka.address, "--time", "at", "--json", "--window", "2s")
    assert run("advise", f"kafka:{topic}", *options) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["rows"] == 599
    assert output["arrivals"] == "the timestamps that producers gave their records"
    assert output["lateness"]["transit"][0] == 40
    assert {each["name"]: each["share"] for each in output["partitions"]["silences"]}["2"] == 0.0
    assert output["keys"]["many"] == 4
    assert 'metadata={"record_key": "key"}' in output["pipeline"]
    assert any("1 of 600 records are not JSON objects" in note for note in output["notes"])
    assert run("advise", f"kafka:{topic}", *options, "--key", "team", "--sample", "90") == 0
    output = json.loads(capsys.readouterr().out)
    assert output["rows"] == 60  # thirty of each partition that has any
    assert output["keys"]["many"] == 3
    assert run("advise", "kafka:no-such-topic", *options) == 2
    assert "there is no topic no-such-topic" in capsys.readouterr().err


SCORE = """{"type": "record", "name": "Score", "fields": [
    {"name": "team", "type": "string"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}"""
JOB = """
import strandline as sl

scores = sl.kafka({topic!r}, servers={servers!r}, metadata={{"sent": "timestamp", "who": "key"}},
                  value=sl.avro("team string, at timestamp", registry=sl.registry({registry!r})))
answers = (
    sl.read(scores).where("team is not null").event_time("at", sl.bounded("1s")).key_by("team")
    .window(sl.tumbling("2s")).aggregate(n=sl.count()).write(sl.console())
)
"""


@pytest.mark.services
def test_avro_with_a_registry_is_sampled_from_a_topic_and_by_a_pipeline(
    kafka: Service,
    registry: Service,
    new_topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra

    topic = new_topic(partitions=2, message_timestamp_type="CreateTime")
    times = [START + 100 * number - (5_000 if number % 10 == 0 else 0) for number in range(300)]
    rows = pl.DataFrame({"team": [f"t{number % 3}" for number in range(300)], "at": times}).with_columns(
        pl.from_epoch("at", time_unit="ms").dt.cast_time_unit("us").dt.replace_time_zone("UTC")
    )
    place = sl.registry(registry.address)
    place.client().register(f"{topic}-value", Schema(Kind.AVRO, SCORE))
    written = sl.avro(registry=place, subject=f"{topic}-value")
    producer = Producer({"bootstrap.servers": kafka.address})
    for number, value in enumerate([*written.encode(rows), b"no frame"]):
        producer.produce(topic, value, key="k", partition=number % 2, timestamp=START + 100 * number + 40)
    assert producer.flush(30) == 0
    asked = ("--bootstrap", kafka.address, "--time", "at", "--key", "team", "--format", "avro", "--window", "2s")
    assert run("advise", f"kafka:{topic}", *asked, "--registry", registry.address, "--json") == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["rows"], output["keys"]["many"], output["lateness"]["transit"][0]) == (300, 3, 40)
    assert any("1 of 301 records cannot be decoded and were left out" in note for note in output["notes"])
    assert f'value=sl.avro(registry=sl.registry("{registry.address}"), subject="{topic}-value"))' in output["pipeline"]

    job = tmp_path / "job_that_is_advised.py"
    job.write_text(JOB.format(topic=topic, servers=kafka.address, registry=registry.address))
    assert run("advise", f"{job}:answers", "--json") == 0
    advice = json.loads(capsys.readouterr().out)
    assert advice["lateness"] == output["lateness"]
    assert advice["keys"] == output["keys"]
    assert advice["yours"]["delay"] == 1_000
    assert advice["yours"]["in_time"] < 0.95
    assert f"sl.read(...)  # and the operations before event_time, as in {job}:answers" in advice["pipeline"]
    assert "«where team is not null» runs in Spark" in "; ".join(advice["notes"])
    assert run("advise", f"{job}:answers", "--format", "csv") == 2
    assert "a pipeline defines how its source is read" in capsys.readouterr().err
