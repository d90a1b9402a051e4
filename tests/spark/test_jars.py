"""Fetching the pinned JVM packages: once, checked by hash, never kept in part."""

import hashlib
import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from strandline.errors import SetupError
from strandline.spark.launch import jars
from strandline.spark.launch.find_java import Java, find_java
from strandline.spark.launch.jars import Jar, fetch_jars, jars_folder, missing, paths, pinned

RESOLVER = """
import json, pathlib, sys
folder, *wanted = sys.argv[1:]
for package in wanted:
    if "absent" in package:
        answer = {"error": "unresolved dependency: not found"}
    else:
        file = pathlib.Path(folder, package.replace(":", "_") + ".jar")
        file.write_bytes(b"bytes of " + package.encode())
        answer = {"file": str(file)}
    print(json.dumps({"coordinates": package} | answer), flush=True)
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(jars, "find_java", lambda: Java(Path("java"), "17", Path("/java")))


@pytest.fixture
def resolver(tmp_path: Path) -> Sequence[str]:
    """A resolver that holds every package but the absent ones."""
    script = tmp_path / "resolver.py"
    script.write_text(RESOLVER)
    return (sys.executable, str(script))


def a_jar(artifact: str, content: bytes | None = None) -> Jar:
    right = b"bytes of " + f"org.example:{artifact}:1.0".encode()
    return Jar(artifact, "org.example", artifact, "1.0", hashlib.sha256(content or right).hexdigest())


def test_every_pin_has_coordinates_and_a_hash() -> None:
    assert [jar.coordinates for jar in pinned()] == [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ]
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in pinned())


def test_a_fetched_jar_is_kept_and_shown(resolver: Sequence[str]) -> None:
    wanted, told = [a_jar("one"), a_jar("two")], list[str]()
    fetch_jars(told.append, jars=wanted, resolver=resolver)
    assert missing(wanted) == ()
    assert told == ["one 1.0", "two 1.0"]
    assert sorted(file.name for file in jars_folder().iterdir()) == ["one-1.0.jar", "two-1.0.jar"]


def test_nothing_is_started_when_all_are_there(resolver: Sequence[str]) -> None:
    fetch_jars(jars=[a_jar("one")], resolver=resolver)
    fetch_jars(jars=[a_jar("one")], resolver=("/no/such/program",))


def test_a_damaged_jar_is_fetched_again(resolver: Sequence[str]) -> None:
    jars_folder().mkdir(parents=True)
    (jars_folder() / "one-1.0.jar").write_bytes(b"half a j")
    fetch_jars(jars=[a_jar("one")], resolver=resolver)
    assert missing([a_jar("one")]) == ()


def test_a_jar_with_other_bytes_is_refused_by_name_and_not_kept(resolver: Sequence[str]) -> None:
    with pytest.raises(SetupError, match="org.example:one:1.0 is not the pinned one"):
        fetch_jars(jars=[a_jar("one", b"something else")], resolver=resolver)
    assert list(jars_folder().iterdir()) == []


def test_a_jar_that_cannot_be_fetched_is_one_clear_line_and_the_others_stay(resolver: Sequence[str]) -> None:
    with pytest.raises(SetupError, match="org.example:absent:1.0 could not be fetched") as refused:
        fetch_jars(jars=[a_jar("one"), a_jar("absent")], resolver=resolver)
    assert "\n" not in str(refused.value)
    assert missing([a_jar("one")]) == ()


def test_a_resolver_that_dies_is_reported_with_its_last_line() -> None:
    dying = (sys.executable, "-c", "raise SystemExit('the JVM did not start')")
    with pytest.raises(SetupError, match="stopped before it answered for org.example:one:1.0") as refused:
        fetch_jars(jars=[a_jar("one")], resolver=dying)
    assert refused.value.detail == "the JVM did not start"


def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STRANDLINE_HOME", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="cannot be kept") as refused:
        fetch_jars(jars=[a_jar("one")], resolver=("/no/such/program",))
    assert "STRANDLINE_HOME" in refused.value.hint


def test_a_session_without_the_jars_is_refused_with_the_missing_one() -> None:
    with pytest.raises(SetupError, match="spark-sql-kafka-0-10_2.13:4.2.0 is missing") as refused:
        paths()
    assert "strandline.spark.launch.jars" in refused.value.hint


def test_a_session_with_a_damaged_jar_is_refused() -> None:
    jars_folder().mkdir(parents=True)
    (jars_folder() / pinned()[0].file).write_bytes(b"half a j")
    with pytest.raises(SetupError, match="is damaged"):
        paths()


def test_another_spark_is_refused_with_the_version_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "version", lambda name: "4.3.0")
    assert not jars.are_for_this_spark()
    with pytest.raises(SetupError) as refused:
        paths()
    assert "no Kafka jars for PySpark 4.3.0" in str(refused.value)
    assert "pyspark==4.2.1" in str(refused.value)


def test_the_command_ends_with_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STRANDLINE_HOME", str(tmp_path / "file"))
    assert jars.main() == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: the jars cannot be kept")
    assert told.err.count("\n") == 1


@pytest.mark.spark
def test_sparks_own_resolver_answers_for_a_package_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(SetupError, match="org.example:nowhere:0.0 could not be fetched"):
        fetch_jars(jars=[Jar("nothing", "org.example", "nowhere", "0.0", "00")])


@pytest.mark.spark
def test_the_pinned_jars_give_this_spark_its_kafka_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    fetch_jars()
    program = f"""
from pyspark.sql import SparkSession
session = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.jars", "{",".join(str(path) for path in paths())}").getOrCreate()
)
stream = session.readStream.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "t")
print(stream.load().columns)
"""
    environ = {**os.environ, "JAVA_HOME": str(find_java().home)}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environ)
    assert "'partition', 'offset'" in ran.stdout, ran.stderr[-2000:]


def test_the_name_of_release_0_1_still_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"is now strandline\.spark\.launch\.jars"):
        old = importlib.import_module("strandline.spark.jars")
    assert old.paths is jars.paths
