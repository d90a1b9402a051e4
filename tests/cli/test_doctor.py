"""Test the findings of `strandline doctor`, its output and its exit code."""

import json
from pathlib import Path

import pytest

from strandline.cli.actions import doctor
from strandline.cli.actions.doctor import Finding, Standing, examine, fits, run, wanted_range
from strandline.errors import SetupError
from strandline.spark.launch import preflight
from strandline.spark.launch.find_java import Java
from strandline.spark.patches.table import PATCHES

GOOD = Finding("memory", Standing.OK, "8.0 GiB free")
SHAKY = Finding("Kafka jars", Standing.WARN, "4 of 4 not fetched yet", "type: fetch")
BAD = Finding("Java", Standing.FAIL, "Java 11 is too old", "type: install it")


def finding(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: list(findings))


def test_everything_spark_needs_is_looked_at() -> None:
    names = [found.name for found in examine()]
    assert names[:13] == [
        *("Python", "polars", "pyarrow", "pandas", "protobuf", "Spark", "Java", "Kafka jars", "memory", "ports"),
        *("current folder", "temporary folder", "cache folder"),
    ]


def test_each_patch_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_PATCHES", "-worker_gc")
    rows = {found.name: found for found in examine()[13:]}
    assert set(rows) == {f"patch {patch.name}" for patch in PATCHES}
    assert all(row.standing is Standing.OK for row in rows.values())
    assert rows["patch worker_gc"].fact.startswith("off: switched off by STRANDLINE_PATCHES")
    assert rows["patch topic_blocks"].fact.startswith("on: ")


def test_each_finding_is_a_line_with_its_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding(monkeypatch, GOOD, SHAKY, BAD)
    assert run(as_json=False) == 2
    assert capsys.readouterr().out.splitlines() == [
        "ok    memory            8.0 GiB free",
        "warn  Kafka jars        4 of 4 not fetched yet; type: fetch",
        "fail  Java              Java 11 is too old; type: install it",
        "1 to fix before Spark can start",
    ]


def test_a_warning_alone_does_not_fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    finding(monkeypatch, GOOD, SHAKY)
    assert run(as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ready, 1 to look at"


def test_a_terminal_gets_marks_and_arrows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    finding(monkeypatch, GOOD, BAD)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(as_json=False) == 2
    told = capsys.readouterr().out
    assert "✓" in told
    assert "✗" in told
    assert "→ type: install it" in told


def test_json_holds_every_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    finding(monkeypatch, GOOD, BAD)
    assert run(as_json=True) == 2
    told = json.loads(capsys.readouterr().out)
    assert [check["standing"] for check in told["checks"]] == ["ok", "fail"]
    assert told["checks"][1] == {
        "name": "Java",
        "standing": "fail",
        "fact": "Java 11 is too old",
        "fix": "type: install it",
    }


def test_a_java_that_was_found_is_told_with_its_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_java", lambda: Java(Path("/j/bin/java"), "17.0.15", Path("/j")))
    assert doctor.java() == Finding("Java", Standing.OK, "17.0.15 at /j")


def test_a_refusal_becomes_a_failure_with_its_hint_as_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Java:
        raise SetupError("Java 11 is too old", detail="found /j", hint="type: install it")

    monkeypatch.setattr(doctor, "find_java", refuse)
    assert doctor.java() == Finding("Java", Standing.FAIL, "Java 11 is too old (found /j)", "type: install it")


def test_little_memory_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "available_memory", lambda: 2**30)
    assert doctor.memory().standing is Standing.FAIL


def test_a_folder_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = doctor.writable("cache folder", tmp_path / "file")
    assert found.standing is Standing.FAIL
    assert found.fix


def test_a_nearly_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_room", lambda folder: 2**29)
    assert doctor.writable("cache folder", tmp_path / "new").standing is Standing.WARN


def test_jars_not_fetched_yet_are_a_warning_and_damaged_ones_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_HOME", str(tmp_path))
    assert doctor.jars().standing is Standing.WARN
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "kafka-clients-3.9.2.jar").write_bytes(b"half a j")
    assert doctor.jars().standing is Standing.FAIL


def test_another_spark_in_the_environment_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark-3.5")
    found = doctor.spark()
    assert found.standing is Standing.WARN
    assert "/opt/spark-3.5" in found.fact


@pytest.mark.parametrize(("found", "lacks"), [("4.1.4", "streaming.datasource"), ("4.3.0", "no jars"), ("4.2.1", "")])
def test_another_pyspark_is_told_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch, found: str, lacks: str) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(doctor, "version", lambda name: found)
    assert lacks in doctor.spark().fact


def test_a_package_outside_the_range_of_our_metadata_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", lambda name: "3.0.1")
    assert doctor.package("pandas") == Finding(
        "pandas",
        Standing.FAIL,
        f"3.0.1, outside {wanted_range('pandas')}",
        f'type: pip install "pandas{wanted_range("pandas")}"',
    )


def test_a_package_that_is_not_there_fails() -> None:
    assert doctor.package("no-such-package").fact == "not installed"


@pytest.mark.parametrize(
    ("found", "wanted", "answer"),
    [
        ("2.3.3", ">=2.2,<3", True),
        ("3.0", ">=2.2,<3", False),
        ("2.10", ">=2.9", True),
        ("4.2.0", "==4.2.0", True),
        ("4.2.1", "==4.2.0", False),
        ("3.14.0rc1", ">=3.11", True),
        ("1.0", "", True),
    ],
)
def test_a_version_is_held_against_a_range(found: str, wanted: str, answer: bool) -> None:
    assert fits(found, wanted) is answer


def test_the_range_comes_from_our_own_metadata() -> None:
    assert wanted_range("pyspark") in {">=4.2.1,<4.4", "<4.4,>=4.2.1"}
    assert wanted_range("pandas") in {">=2.2,<3", "<3,>=2.2"}
