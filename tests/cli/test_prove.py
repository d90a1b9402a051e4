"""`strandline prove`: options reach the proof, and what there is nothing of is refused."""

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
    ("words", "said"),
    [
        (["--sink", "paper"], "there is no sink 'paper'"),
        (["--semantics", "twice"], "there is no delivery 'twice'"),
        (["--bug", "none-such"], "there is no bug 'none-such'"),
    ],
)
def test_what_is_not_there_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_mistake_made_on_purpose_is_caught_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--bug", "no-ledger") == 0
    told = capsys.readouterr().out
    assert "caught in sqlite by the" in told
    assert "duplicate" in told


def test_the_log_has_its_voice_back_afterwards() -> None:
    before = logging.getLogger("strandline").level
    assert run("--sink", "paper") == 2
    assert logging.getLogger("strandline").level == before
