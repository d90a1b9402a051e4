"""Test the table of patches: the switch, the log, and that the suite passes with all of them off."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.errors import SetupError
from strandline.spark.patches.switch import VARIABLE, is_on, switched_off
from strandline.spark.patches.table import PATCHES, RELIANCES, apply_patches, states

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("value", "on", "off"),
    [
        ("", ["fork_server", "worker_gc"], []),
        ("off", [], ["fork_server", "worker_gc"]),
        ("-fork_server", ["worker_gc"], ["fork_server"]),
        (" -fork_server , -slim_home ", ["worker_gc"], ["fork_server", "slim_home"]),
    ],
)
def test_one_variable_switches_patches_off(value: str, on: list[str], off: list[str]) -> None:
    assert all(is_on(name, {VARIABLE: value}) for name in on)
    assert not any(is_on(name, {VARIABLE: value}) for name in off)


def test_names_are_read_with_and_without_a_minus() -> None:
    assert switched_off({VARIABLE: "-a,b"}) == ("a", "b")
    assert switched_off({}) == ()


def test_every_patch_says_what_it_changes_and_what_happens_without_it() -> None:
    assert len({patch.name for patch in PATCHES}) == len(PATCHES)
    for patch in PATCHES:
        assert patch.changes
        assert patch.gain
        assert patch.without
        assert patch.tried


def test_the_modules_that_rely_on_internals_exist() -> None:
    for each in RELIANCES:
        assert (ROOT / "src" / "strandline" / each.module).is_file()


def test_a_patch_that_is_off_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert {why for _, why in states()} == {f"switched off by {VARIABLE}"}
    monkeypatch.setenv(VARIABLE, "-worker_gc")
    assert [patch.name for patch, why in states() if VARIABLE in why] == ["worker_gc"]


def test_an_unknown_name_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "-no_such_patch")
    with pytest.raises(SetupError, match="no_such_patch"):
        apply_patches(spark)


def test_each_patch_that_is_off_is_one_line_in_the_log(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "-worker_gc,-local_files")
    with caplog.at_level(logging.INFO, "strandline.patches"):
        apply_patches(spark, names=("worker_gc", "local_files", "jvm_locale"))
    found = [record.getMessage().split()[1] for record in caplog.records if record.name == "strandline.patches"]
    assert found == ["worker_gc", "local_files"]


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_the_whole_suite_passes_with_all_patches_off() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "spark and not campaign", "tests"]
    ran = subprocess.run(
        command, cwd=ROOT, env=os.environ | {VARIABLE: "off"}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-5_000:]
