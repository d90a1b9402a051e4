"""`strandline prove`: options reach the proof, and unknown ones are refused."""

import logging
import sys
from types import ModuleType, SimpleNamespace

import pytest

from strandline.cli.main import main


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(("prove", "delivery", *words))
    code = ended.value.code
    assert isinstance(code, int)
    return code


def test_options_reach_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[SimpleNamespace] = []

    def proved(asked: SimpleNamespace) -> int:
        got.append(asked)
        return 1

    module = ModuleType("proof.main")
    module.Asked = SimpleNamespace  # type: ignore[attr-defined]
    module.main = proved  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "proof.main", module)
    assert run("--sink", "sqlite", "--sink", "delta", "--kills", "3", "--seed", "9", "--json") == 1
    (asked,) = got
    assert (asked.sinks, asked.semantics, asked.kills, asked.seed) == (["sqlite", "delta"], [], 3, 9)
    assert (asked.bug, asked.as_json, asked.campaign, asked.spark, asked.work) == (None, True, False, True, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sink", "paper"], "there is no sink 'paper'"),
        (["--semantics", "twice"], "there is no delivery 'twice'"),
        (["--bug", "none-such"], "there is no bug 'none-such'"),
    ],
)
def test_unknown_options_are_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_an_injected_bug_is_detected(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--bug", "no-ledger") == 0
    output = capsys.readouterr().out
    assert "caught in sqlite by the" in output
    assert "duplicate" in output


def test_the_log_level_is_restored() -> None:
    before = logging.getLogger("strandline").level
    assert run("--sink", "paper") == 2
    assert logging.getLogger("strandline").level == before
