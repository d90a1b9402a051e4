"""`strandline up`, `down`, `status`, `logs`, tested with the service that starts fastest."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.cli.main import main
from strandline.services.catalogue import service


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("STRANDLINE_SERVICES", str(tmp_path))
    yield tmp_path
    service("registry", tmp_path).kill()


def run(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


def message(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.slow
def test_a_service_goes_up_and_down(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert run("up", "registry") == 0
    address = service("registry", home).address
    assert re.search(r"is ready after \d+\.\d s: ", output := message(capsys))
    assert address in output
    assert run("up", "registry") == 0
    assert f"already running: {address}" in message(capsys)
    assert run("down") == 0
    assert message(capsys) == "registry stopped\n"
    assert run("down", "registry") == 0
    assert message(capsys) == "registry is not running\n"


@pytest.mark.slow
def test_status_prints_every_service(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    run("up", "registry")
    capsys.readouterr()
    assert run("status") == 0
    lines = {line.split()[0]: line for line in message(capsys).splitlines()}
    assert "never started" in lines["kafka"]
    assert service("registry", home).address in lines["registry"]
    assert run("status", "--json") == 0
    output = {each["name"]: each for each in json.loads(message(capsys))}
    assert output["registry"]["pid"] == service("registry", home).pid
    assert output["postgres"]["pid"] is None


@pytest.mark.slow
def test_the_log_is_shown_from_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    run("up", "registry")
    capsys.readouterr()
    assert run("logs", "registry", "-n", "1") == 0
    assert message(capsys).count("\n") == 1
    run("down")
    capsys.readouterr()
    assert run("logs", "registry", "--follow", "-n", "100") == 0
    assert "schemas are stored in" in message(capsys)


@pytest.mark.slow
def test_wiping_deletes_the_data(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    run("up", "registry")
    assert run("down", "registry", "--wipe") == 0
    assert "deleted" in message(capsys)
    assert not (home / "registry").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("up", "kafak"), "there is no service 'kafak'"),
        (("up", "registry", "postgres", "--port", "9000"), "one port cannot serve 2 services"),
        (("up", "registry", "--topic", "a"), "--topic needs the kafka service"),
        (("up", "kafka", "--topic", "a:b"), "is not a topic"),
        (("logs", "kafka"), "kafka has no log yet"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_invalid_arguments_are_refused_with_a_hint(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    assert run(*words) == 2
    output = message(capsys)
    assert why in output
    assert "hint:" in output
