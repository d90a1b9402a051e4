"""`strandline schema`: list, show, check and register."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.cli.main import main
from tests.formats.registries import FakeRegistry, serving

OLD = '{"type": "record", "name": "Score", "fields": [{"name": "team", "type": "string"}]}'
FINE = OLD.replace("]}", ', {"name": "n", "type": "long", "default": 0}]}')
WRONG = OLD.replace('"string"', '"long"')


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    with serving() as started:
        monkeypatch.setenv("STRANDLINE_REGISTRY", started.url)
        yield started


def strandline(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["schema", *words])
    return int(left.value.code or 0)


def test_list_prints_every_subject(fake: FakeRegistry, capsys: pytest.CaptureFixture[str]) -> None:
    assert strandline("list") == 0
    assert capsys.readouterr().out == "no subjects\n"
    fake.add("scores-value", OLD)
    fake.add("scores-value", FINE)
    assert strandline("list") == 0
    assert capsys.readouterr().out == "scores-value  version 2  id 2  AVRO  BACKWARD\n"
    assert strandline("list", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["id"] == 2


def test_show_prints_a_schema_and_its_columns(fake: FakeRegistry, capsys: pytest.CaptureFixture[str]) -> None:
    fake.add("scores-value", OLD)
    fake.add("scores-value", FINE)
    assert strandline("show", "scores-value", "--version", "1") == 0
    assert capsys.readouterr().out.endswith("columns: team string\n")
    assert strandline("show", "scores-value", "--json") == 0
    assert json.loads(capsys.readouterr().out)["columns"] == "team string, n long"
    fake.add("proto", 'syntax = "proto3"; message M { int32 x = 1; }', "PROTOBUF")
    assert strandline("show", "proto") == 0
    assert "columns: x int" in capsys.readouterr().out
    fake.add("plain", "{}", "JSON")
    assert strandline("show", "plain") == 0
    assert "no columns" in capsys.readouterr().out


def test_check_prints_whether_a_schema_is_compatible(
    fake: FakeRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.add("scores-value", OLD)
    file = tmp_path / "new.avsc"
    file.write_text(FINE)
    assert strandline("check", "scores-value", str(file)) == 0
    assert "is compatible with scores-value (BACKWARD)" in capsys.readouterr().out
    file.write_text(WRONG)
    assert strandline("check", "scores-value", str(file)) == 1
    assert "cannot read version 1: team: string was written, long is read" in capsys.readouterr().out
    assert strandline("check", "scores-value", str(file), "--level", "none") == 0
    assert strandline("check", "new-value", str(file)) == 0
    assert fake.subjects == {"scores-value": [1]}


def test_register_accepts_only_compatible_schemas(
    fake: FakeRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.add("scores-value", OLD)
    file = tmp_path / "new.avsc"
    file.write_text(WRONG)
    assert strandline("register", "scores-value", str(file)) == 2
    assert "is not compatible with scores-value" in capsys.readouterr().err
    file.write_text(FINE)
    assert strandline("register", "scores-value", str(file)) == 0
    assert capsys.readouterr().out == "scores-value: id 2\n"
    proto = tmp_path / "new.proto"
    proto.write_text('syntax = "proto3"; message M { int32 x = 1; }')
    assert strandline("register", "scores-value", str(proto)) == 2
    assert "is written in AVRO" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("show", "nothing"), "has no result for"),
        (("check", "x", "nowhere.avsc"), "cannot read nowhere.avsc"),
        (("check", "x", "{}", "--kind", "thrift"), "not a kind of schema"),
        (("check", "x", "{}"), "cannot tell what kind of schema"),
        (("check", "x", "{}", "--kind", "avro"), "an Avro type is"),
        (("check", "x", "{}", "--kind", "json", "--level", "some"), "is not a compatibility level"),
        (("list", "--token", "hunter2"), "a secret is given by reference"),
    ],
)
def test_errors_are_printed(
    fake: FakeRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    file = tmp_path / "file"
    file.write_text("{}")
    assert strandline(*(str(file) if word == "{}" else word for word in words)) == 2
    output = capsys.readouterr().err
    assert reason in output
    assert "hunter2" not in output


def test_a_missing_registry_is_reported_with_the_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STRANDLINE_REGISTRY", raising=False)
    assert strandline("list") == 2
    assert "--registry http://localhost:8081" in capsys.readouterr().err
