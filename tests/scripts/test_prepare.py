"""Preparing a checkout: once, from the lock, and again after an interruption."""

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import prepare
import pytest
from prepare import DEMO_LOCK, FULL_LOCK, Checkout, exclusive, install_java, root_prefix
from progress import Ran, Step

from strandline.errors import SetupError
from strandline.spark.launch.find_java import Java
from strandline.spark.launch.package_manager import APT, BREW, PackageManager
from tests.scripts.fake_checkout import calls, make_checkout, use_python

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout whose environment has a Python that installs nothing."""
    return make_checkout(tmp_path)


def test_a_second_start_does_nothing(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    prepare.prepare(checkout, with_java=False)
    done = calls(checkout)
    capsys.readouterr()
    prepare.prepare(checkout, with_java=False)
    assert calls(checkout) == done
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("changed", [FULL_LOCK, "pyproject.toml"])
def test_a_changed_lock_or_project_is_installed_again(checkout: Checkout, changed: str) -> None:
    prepare.prepare(checkout, with_java=False)
    done = calls(checkout)
    with (checkout.root / changed).open("a") as file:
        file.write("# changed\n")
    prepare.prepare(checkout, with_java=False)
    assert len(calls(checkout)) > len(done)


def test_the_tests_complete_an_environment_that_was_made_for_the_demo(checkout: Checkout) -> None:
    prepare.prepare(checkout, for_demo=True, with_java=False)
    assert checkout.is_ready(DEMO_LOCK)
    assert not checkout.is_ready(FULL_LOCK)
    prepare.prepare(checkout, with_java=False)
    assert checkout.is_ready(FULL_LOCK)


def test_the_demo_needs_nothing_more_than_the_full_environment(checkout: Checkout) -> None:
    prepare.prepare(checkout, with_java=False)
    done = calls(checkout)
    prepare.prepare(checkout, for_demo=True, with_java=False)
    assert calls(checkout) == done


def test_the_demo_fetches_no_jars(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Checkout] = []
    monkeypatch.setattr(prepare, "find_java", lambda: None)
    monkeypatch.setattr(prepare, "make_jars_ready", fetched.append)
    prepare.prepare(checkout, for_demo=True)
    assert fetched == []
    prepare.prepare(checkout)
    assert fetched == [checkout]


def test_a_failed_install_is_done_again(checkout: Checkout) -> None:
    use_python(checkout, uv="exit 1", pip="echo no route to host; exit 1")
    with pytest.raises(SetupError, match="could not be installed"):
        prepare.prepare(checkout, with_java=False)
    assert not checkout.is_ready(FULL_LOCK)
    use_python(checkout)
    prepare.prepare(checkout, with_java=False)
    assert checkout.is_ready(FULL_LOCK)


def test_an_environment_whose_python_is_gone_is_made_again(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout.python.unlink()
    made: list[Path] = []

    def make(checkout: Checkout) -> None:
        made.append(checkout.venv)
        use_python(checkout)

    monkeypatch.setattr(prepare, "make_venv", make)
    prepare.prepare(checkout, with_java=False)
    assert made == [checkout.venv]
    assert checkout.is_ready(FULL_LOCK)


def test_an_environment_whose_creation_was_interrupted_cannot_install(checkout: Checkout) -> None:
    assert checkout.can_install()
    checkout.python.write_text("#!/bin/sh\necho No module named pip; exit 1\n")
    assert not checkout.can_install()


def test_a_python_without_venv_is_refused_with_the_package_to_install(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(prepare, "find_manager", lambda: APT)
    monkeypatch.setattr(prepare, "root_prefix", lambda manager: None)
    with pytest.raises(SetupError, match="no venv module") as refused:
        prepare.make_venv(checkout)
    assert re.search(r"apt-get install -y python3\.\d+-venv$", refused.value.hint)


def test_two_starts_in_one_folder_take_turns(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with exclusive(tmp_path):
            order.append("second")

    with exclusive(tmp_path):
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(timeout=0.3)
        order.append("first")
    waiting.join(timeout=5)
    assert order == ["first", "second"]


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Java is missing until the returned function is called."""
    there: list[Java] = []

    def find() -> Java:
        if not there:
            raise SetupError("Java was not found", hint="type: apt-get install java")
        return there[0]

    monkeypatch.setattr(prepare, "find_java", find)
    return lambda: there.append(Java(Path("java"), "17", Path()))


def test_a_missing_java_is_refused_where_we_may_not_install(
    no_java: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "find_manager", lambda: APT)
    monkeypatch.setattr(prepare, "root_prefix", lambda manager: None)
    with pytest.raises(SetupError, match="Java was not found") as refused:
        prepare.make_java_ready()
    assert refused.value.hint == "type: apt-get install java"


def test_a_missing_java_is_installed_where_we_may(no_java: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "find_manager", lambda: APT)
    monkeypatch.setattr(prepare, "root_prefix", lambda manager: [])
    monkeypatch.setattr(prepare, "install_java", lambda manager, prefix: no_java())
    prepare.make_java_ready()


def a_manager(folder: Path, script: str) -> PackageManager:
    program = folder / "manager"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n{script}\n')
    program.chmod(0o755)
    return PackageManager(str(program), refresh=("update",), install=("install",), java=("java-21", "java-17"))


def test_the_next_name_for_java_is_tried_when_the_first_is_unknown(tmp_path: Path) -> None:
    install_java(a_manager(tmp_path, '[ "$2" != java-21 ]'), [])
    assert (tmp_path / "asked").read_text().splitlines() == ["update", "install java-21", "install java-17"]


def test_a_java_that_cannot_be_installed_is_refused_with_the_managers_last_lines(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="Java could not be installed") as refused:
        install_java(a_manager(tmp_path, "echo no mirror answers; exit 100"), [])
    assert "no mirror answers" in refused.value.detail


def test_a_missing_browser_is_installed_where_we_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "find_chromium", lambda: None)
    monkeypatch.setattr(prepare, "find_manager", lambda: a_manager(tmp_path, "true"))
    monkeypatch.setattr(prepare, "root_prefix", lambda manager: [])
    prepare.make_browser_ready()
    assert (tmp_path / "asked").read_text().splitlines() == ["update", "install chromium"]


def test_a_browser_that_cannot_be_installed_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "find_chromium", lambda: None)
    monkeypatch.setattr(prepare, "find_manager", lambda: a_manager(tmp_path, "exit 100"))
    monkeypatch.setattr(prepare, "root_prefix", lambda manager: [])
    prepare.make_browser_ready()
    assert (tmp_path / "asked").read_text().splitlines() == ["update", "install chromium"]


def test_a_browser_that_is_there_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "find_chromium", lambda: "/usr/bin/chromium")
    monkeypatch.setattr(prepare, "find_manager", lambda: a_manager(tmp_path, "true"))
    prepare.make_browser_ready()
    assert not (tmp_path / "asked").exists()


def test_homebrew_is_not_used_by_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert root_prefix(BREW) is None
    assert root_prefix(APT) == []


def test_a_user_without_sudo_may_not_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert root_prefix(APT) is None
    assert root_prefix(BREW) == []


@pytest.mark.parametrize(("asks_no_password", "prefix"), [(True, ["{sudo}", "-n"]), (False, None)])
def test_sudo_is_used_only_when_it_asks_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks_no_password: bool, prefix: list[str] | None
) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text(f"#!/bin/sh\nexit {0 if asks_no_password else 1}\n")
    sudo.chmod(0o755)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda name: str(sudo))
    assert root_prefix(APT) == (prefix and [part.format(sudo=sudo) for part in prefix])


def test_jars_that_cannot_be_fetched_are_refused_with_the_fetchers_last_line(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "missing", lambda: ("one",))
    monkeypatch.setattr(Step, "run", lambda *_, **__: Ran(2, "first 1.0\nerror: the jar second could not be fetched\n"))
    with pytest.raises(SetupError) as refused:
        prepare.make_jars_ready(checkout)
    assert str(refused.value) == "the jar second could not be fetched"


def test_nothing_is_started_when_no_jar_is_missing(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "missing", lambda: ())
    prepare.make_jars_ready(checkout)
    assert calls(checkout) == []


def test_the_program_refuses_in_one_line_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(checkout: Checkout, *, for_demo: bool, with_java: bool, with_browser: bool) -> None:
        raise SetupError("Java was not found", hint="type: something")

    monkeypatch.setattr(prepare, "prepare", refuse)
    assert prepare.main([]) == 2
    assert capsys.readouterr().err == "error: Java was not found Hint: type: something\n"


@pytest.mark.parametrize("name", [FULL_LOCK, DEMO_LOCK])
def test_a_lock_holds_hashes_and_no_registrys_address(name: str) -> None:
    lock = (ROOT / name).read_text()
    assert "://" not in lock
    assert not re.search(r"^--", lock, re.MULTILINE)
    packages = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in package for package in packages)


def test_the_pins_of_the_jars_hold_no_address() -> None:
    assert "://" not in (ROOT / "src" / "strandline" / "spark" / "launch" / "jars.toml").read_text()


def test_the_demos_lock_is_a_part_of_the_full_one() -> None:
    full, demo = (entries(ROOT / name) for name in (FULL_LOCK, DEMO_LOCK))
    assert demo < full
    assert not {"pytest", "ruff", "mypy", "duckdb", "deltalake"} & {re.split("==", entry)[0] for entry in demo}


def entries(lock: Path) -> set[str]:
    """The packages of a lock with versions, markers and hashes."""
    found = re.split(r"^(?=\S)", re.sub(r"^ +#.*\n", "", lock.read_text(), flags=re.MULTILINE), flags=re.MULTILINE)
    # A marker that follows from the package that asks for it may be absent in one lock; versions and hashes may not.
    return {re.sub(r" ; .*?(?= \\$)", "", entry, flags=re.MULTILINE) for entry in found if entry.strip()}


@pytest.mark.slow
def test_the_lock_holds_all_that_its_packages_need() -> None:
    ran = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
