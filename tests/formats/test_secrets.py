"""Secrets are references; the value is read only when it is needed."""

import pickle
from pathlib import Path

import pytest

import strandline as sl
from strandline.errors import InvalidSecret, SetupError
from strandline.formats.secrets import Secret, secret


def test_a_variable_is_read_when_the_secret_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = sl.secret("env:STRANDLINE_TEST_PASSWORD")
    monkeypatch.setenv("STRANDLINE_TEST_PASSWORD", "hunter2")
    assert kept.reveal() == "hunter2"
    monkeypatch.setenv("STRANDLINE_TEST_PASSWORD", "changed")
    assert kept.reveal() == "changed"


def test_a_file_is_read_to_the_end_of_its_first_line(tmp_path: Path) -> None:
    place = tmp_path / "token"
    for text in ("s3cret", "s3cret\n", "s3cret\r\n", "s3cret\nand a remark\n"):
        place.write_text(text)
        assert Secret(f"file:{place}").reveal() == "s3cret"


def test_a_secret_is_shown_and_stored_as_its_reference_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_TEST_PASSWORD", "hunter2")
    kept = Secret("env:STRANDLINE_TEST_PASSWORD")
    kept.reveal()
    for result in (repr(kept), str(kept), f"{kept}", repr(pickle.dumps(kept))):
        assert "hunter2" not in result
        assert "STRANDLINE_TEST_PASSWORD" in result


@pytest.mark.parametrize("text", ["hunter2", "", "env:", "vault:x", "https://user:hunter2@host"])
def test_a_secret_as_text_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(InvalidSecret) as refused:
        Secret(text)
    assert "hunter2" not in str(refused.value)
    assert "env:NAME" in refused.value.hint


@pytest.mark.parametrize("reference", ["env:STRANDLINE_NOT_SET", "file:/nowhere/at/all", "file:/"])
def test_a_missing_secret_is_named_by_its_reference(reference: str) -> None:
    with pytest.raises(SetupError, match=f"the secret {reference} is missing or empty"):
        Secret(reference).reveal()


def test_an_empty_secret_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_TEST_PASSWORD", "")
    with pytest.raises(SetupError, match="missing or empty"):
        Secret("env:STRANDLINE_TEST_PASSWORD").reveal()


def test_the_secret_function_accepts_a_secret() -> None:
    kept = Secret("env:X")
    assert secret(kept) is kept
