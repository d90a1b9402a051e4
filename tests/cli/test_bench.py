"""`strandline bench`: finds the benchmarks of a checkout, or says where they are."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from strandline.cli.actions import bench
from strandline.cli.main import main
from strandline.errors import SetupError

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(("bench", *words))
    code = ended.value.code
    assert isinstance(code, int)
    return code


def test_the_checkout_is_found_from_any_folder_inside_it() -> None:
    assert bench.find_checkout(ROOT / "tests" / "cli") == ROOT


def test_outside_a_checkout_the_one_of_the_package_is_used(tmp_path: Path) -> None:
    assert bench.find_checkout(tmp_path) == ROOT


def test_without_a_checkout_the_hint_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "site-packages" / "strandline" / "cli" / "bench.py"))
    with pytest.raises(SetupError, match="the benchmarks are not installed") as refused:
        bench.find_checkout(tmp_path)
    assert "clone it" in refused.value.hint


def test_options_reach_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[object] = []
    turns, module = ModuleType("benchmarks.turns"), ModuleType("benchmarks.windows")
    turns.Asked = lambda *words: SimpleNamespace(words=words)  # type: ignore[attr-defined]

    def measure(asked: SimpleNamespace) -> int:
        got.append(asked.words)
        return 0

    module.main = measure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.turns", turns)
    monkeypatch.setitem(sys.modules, "benchmarks.windows", module)
    monkeypatch.setitem(sys.modules, "benchmarks.sources", module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert run("windows") == 0
    words = ("windows", "--quick", "--only", "sliding", "--only", "latency", "--rounds", "5", "--work", str(tmp_path))
    assert run(*words, "--again") == 0
    assert run("sources", "--rounds", "2") == 0
    plain = (False, (), None, None, False)
    assert got == [plain, (True, ("sliding", "latency"), 5, tmp_path, True), (False, (), 2, None, False)]


def test_a_missing_package_of_the_benchmarks_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "benchmarks.windows", None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert run("windows") == 2
    assert "pip install -e '.[dev]'" in capsys.readouterr().err
