"""Sampling a pipeline's own source, and topics given by command-line options."""

from pathlib import Path

import polars as pl
import pytest

import strandline as sl
from strandline.advise.pipeline_inputs import sample_of_pipeline, source_of
from strandline.advise.sample import KEY, TIME, Columns
from strandline.advise.topic_access import Access, security_of, value_of
from strandline.errors import InvalidSecret, InvalidStep
from strandline.plan.endpoints import Source
from tests.advise.made import START

OWN = Columns("")
LINES = [f"t{number % 3},{START + 1_000 * number},2020-09-13T12:27:{number:02}Z" for number in range(40)]


def answers(source: Source, *, salt: bool = False) -> sl.Pipeline:
    keyed = sl.read(source).event_time("at", sl.bounded("10s")).key_by("team").window(sl.tumbling("5s"))
    return (keyed.hot_keys(salt=4) if salt else keyed).aggregate(all=sl.collect("n")).write(sl.console())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """CSV files with headers, one with an invalid line."""
    (tmp_path / "1.csv").write_text("\n".join(["team,n,at", *LINES[:20], "no record", ""]))
    (tmp_path / "2.csv").write_text("\n".join(["team,n,at", *LINES[20:], ""]))
    (tmp_path / "other.txt").write_text("not a match")
    return tmp_path


def csv_in(folder: Path) -> Source:
    return sl.files(folder, sl.csv("team string, n long, at timestamp"), header=True, pattern="*.csv")


def test_time_keys_window_and_delay_are_taken_from_the_pipeline(folder: Path) -> None:
    taken = sample_of_pipeline(answers(csv_in(folder), salt=True).root, "job.py:answers", OWN, 1_000)
    assert taken.sample.columns == Columns("at", ("team",))
    assert (taken.window, taken.delay) == (5_000, 10_000)
    assert taken.sample.rows.height == 40
    assert taken.sample.rows[KEY].n_unique() == 3
    assert taken.sample.origin.pipeline == "job.py:answers"


def test_undecodable_lines_are_counted(folder: Path) -> None:
    (note,) = sample_of_pipeline(answers(csv_in(folder)).root, "job.py", OWN, 1_000).sample.notes
    assert note.startswith("1 of 41 lines cannot be decoded and were left out: they would be dead letters; the first: ")


def test_only_the_last_files_are_read(folder: Path) -> None:
    taken = sample_of_pipeline(answers(csv_in(folder)).root, "job.py", OWN, 10)
    assert taken.sample.rows.height == 10
    assert "1 of 2 files were read" in taken.sample.notes[0]


def test_parquet_is_read_with_the_columns_of_the_pipeline(tmp_path: Path) -> None:
    times = pl.Series("at", [START + 1_000 * number for number in range(9)]).cast(pl.Datetime("ms", "UTC"))
    pl.DataFrame([times, pl.Series("team", ["a", "b", "c"] * 3), pl.Series("n", range(9))]).write_parquet(
        tmp_path / "1.parquet"
    )
    taken = sample_of_pipeline(
        answers(sl.files(tmp_path, "team string, n long, at timestamp")).root, "job.py", OWN, 100
    )
    assert taken.sample.rows[TIME].to_list() == [START + 1_000 * number for number in range(9)]


def test_python_operations_before_the_key_are_applied_and_sql_is_noted(folder: Path) -> None:
    pipeline = (
        sl.read(csv_in(folder))
        .where("n > 0")
        .select(who="team", when="at", n="n")
        .where(pl.col("who") != "t2")
        .event_time("when", sl.percentile(0.99))
        .with_columns(half=pl.col("n") % 2)
        .key_by("who", "half")
        .window(sl.sliding("10s", every="5s"))
        .aggregate(n=sl.count())
        .write(sl.console())
    )
    taken = sample_of_pipeline(pipeline.root, "job.py", OWN, 1_000)
    assert taken.sample.columns == Columns("when", ("who", "half"))
    assert (taken.window, taken.delay) == (None, None)
    assert taken.sample.rows[KEY].unique().sort().to_list() == ["t0 / 0", "t1 / 0"]
    notes = "; ".join(taken.sample.notes)
    assert "«where n > 0» runs in Spark: rows that it removes are in the sample" in notes
    assert "removes 13 of 40 rows" in notes


def test_a_time_computed_by_spark_is_refused_unless_another_column_is_given(folder: Path) -> None:
    pipeline = (
        sl.read(csv_in(folder))
        .with_columns(at="at + interval 1 hour")
        .event_time("at", sl.bounded("10s"))
        .key_by("team")
        .window(sl.tumbling("5s"))
        .aggregate(n=sl.count())
        .write(sl.console())
    )
    with pytest.raises(InvalidStep, match="the column 'at' is computed by SQL"):
        sample_of_pipeline(pipeline.root, "job.py", OWN, 1_000)
    assert sample_of_pipeline(pipeline.root, "job.py", Columns("n"), 1_000).sample.unit == "milliseconds"


def test_one_of_several_sources_must_be_selected(folder: Path) -> None:
    kafka = sl.kafka("scores", servers="localhost:9092", value=sl.json("team string, n long, at timestamp"))
    both = sl.together(answers(csv_in(folder)), answers(kafka))
    with pytest.raises(InvalidStep, match="the pipeline has several sources"):
        source_of(both.root)
    assert source_of(both.root, "scores").source == kafka
    with pytest.raises(InvalidStep, match="no source of the pipeline is called 'plays'"):
        source_of(both.root, "plays")
    timeless = sl.read(kafka).write(sl.console())
    with pytest.raises(InvalidStep, match="no source of the pipeline has an event time"):
        source_of(timeless.root)


def test_security_options_become_values_and_code() -> None:
    options = ("mechanism=SCRAM-SHA-512", "user=me", "password=env:PW", "authority=ca.pem")
    found = security_of(Access(security=options))
    assert found is not None
    assert found.value == sl.sasl("SCRAM-SHA-512", user="me", password="env:PW", authority="ca.pem")
    assert found.code == 'sl.sasl("SCRAM-SHA-512", user="me", password="env:PW", authority="ca.pem")'
    found = security_of(Access(security=("certificate=me.pem",)))
    assert found is not None
    assert found.value == sl.tls(certificate="me.pem")
    assert security_of(Access()) is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("sasl.password=hunter2",), "--security has no 'sasl.password'"),
        (("mechanism=PLAIN", "user=me"), "PLAIN needs a user and a password"),
        (("user=me",), "user is not an option of TLS without SASL"),
        (("mechanism=PLAIN", "user=me", "password=env:P", "over_tls=perhaps"), "over_tls must be true or false"),
    ],
)
def test_invalid_security_options_are_refused_without_repeating_secrets(options: tuple[str, ...], why: str) -> None:
    with pytest.raises(InvalidStep, match=why) as refused:
        security_of(Access(security=options))
    assert "hunter2" not in str(refused.value)
    with pytest.raises(InvalidSecret):
        security_of(Access(security=("mechanism=PLAIN", "user=me", "password=hunter2")))


def test_format_options_become_values_and_code(tmp_path: Path) -> None:
    found = value_of(Access(format="csv", schema="team string, at timestamp"), "scores")
    assert found is not None
    assert found.value == sl.csv("team string, at timestamp")
    assert found.code == 'sl.csv("team string, at timestamp")'
    proto = tmp_path / "score.proto"
    proto.write_text('syntax = "proto3"; message Score { string team = 1; int64 at = 2; }')
    found = value_of(Access(format="protobuf", schema=str(proto)), "scores")
    assert found is not None
    assert found.value.columns == ("team", "at")
    assert "pathlib.Path(" in found.code
    assert value_of(Access(), "scores") is None


@pytest.mark.parametrize(
    ("access", "why"),
    [
        (Access(format="xml"), "there is no format 'xml'"),
        (Access(format="avro"), "avro cannot be read without a schema"),
        (Access(format="csv", schema="a long", registry="http://localhost:1"), "csv has no registry"),
        (Access(registry="http://localhost:1"), "json needs its columns"),
        (Access(registry_security=("user=env:U",)), "no registry is given"),
        (Access(format="avro", schema="nowhere.avsc"), "the schema nowhere.avsc cannot be read"),
    ],
)
def test_invalid_format_options_are_refused(access: Access, why: str) -> None:
    with pytest.raises(InvalidStep, match=why):
        value_of(access, "scores")
