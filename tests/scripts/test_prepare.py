"""Making a checkout ready: once, from the lock, and done again when it was broken off."""

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import prepare
import pytest
from prepare import PipReader, Workshop, alone_in, entry_of, install_java, root_prefix
from progress import Ran, Step

from strandline.errors import SetupError
from strandline.spark.launch.find_java import Java
from strandline.spark.launch.package_manager import APT, BREW, PackageManager

ROOT = Path(__file__).parents[2]
LOCK = """polars==2.1.0 \\
    --hash=sha256:aa
    # via strandline
setuptools==84.2.1 \\
    --hash=sha256:bb \\
    --hash=sha256:cc
    # via strandline
"""

# An environment's Python that tells its version and writes down what it was asked to do.
PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then echo 3.11; exit; fi
echo "$@" >> "$(dirname "$0")/asked"
case "$*" in
  *--require-hashes*) echo Collecting polars; {then};;
esac
"""


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A checkout whose environment has a Python that installs nothing."""
    (tmp_path / "requirements.lock").write_text(LOCK)
    (tmp_path / "pyproject.toml").write_text("[project]")
    workshop = Workshop(tmp_path)
    use_python(workshop, then="true")
    return workshop


def use_python(workshop: Workshop, *, then: str) -> None:
    workshop.python.parent.mkdir(parents=True, exist_ok=True)
    workshop.python.write_text(PYTHON.format(then=then))
    workshop.python.chmod(0o755)


def installs(workshop: Workshop) -> list[str]:
    asked = (workshop.python.parent / "asked").read_text().splitlines()
    return [line for line in asked if " install " in line]


def test_the_first_start_installs_the_builder_the_lock_and_the_package(workshop: Workshop) -> None:
    prepare.prepare(workshop, with_java=False)
    builder, lock, package = installs(workshop)
    assert "--require-hashes" in builder
    assert builder.endswith("builders.lock")
    assert "--require-hashes" in lock
    assert "--no-deps" in lock
    assert lock.endswith("requirements.lock")
    assert package.endswith(f"--no-deps --no-build-isolation -e {workshop.root}")


def test_a_second_start_does_nothing(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    prepare.prepare(workshop, with_java=False)
    done = installs(workshop)
    capsys.readouterr()
    prepare.prepare(workshop, with_java=False)
    assert installs(workshop) == done
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("changed", ["requirements.lock", "pyproject.toml"])
def test_a_changed_lock_or_project_is_installed_again(workshop: Workshop, changed: str) -> None:
    prepare.prepare(workshop, with_java=False)
    with (workshop.root / changed).open("a") as file:
        file.write("# changed\n")
    prepare.prepare(workshop, with_java=False)
    assert len(installs(workshop)) == 6


def test_a_failed_install_shows_pips_last_lines_and_is_done_again(workshop: Workshop) -> None:
    use_python(workshop, then="echo no route to host; exit 1")
    with pytest.raises(SetupError, match="could not be installed") as refused:
        prepare.prepare(workshop, with_java=False)
    assert "no route to host" in refused.value.detail
    assert not workshop.is_ready()
    use_python(workshop, then="true")
    prepare.prepare(workshop, with_java=False)
    assert workshop.is_ready()


def test_an_environment_whose_python_is_gone_is_made_anew(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop.python.unlink()
    made: list[Path] = []

    def make(workshop: Workshop) -> None:
        made.append(workshop.venv)
        use_python(workshop, then="true")

    monkeypatch.setattr(prepare, "make_venv", make)
    prepare.prepare(workshop, with_java=False)
    assert made == [workshop.venv]
    assert workshop.is_ready()


def test_an_environment_whose_making_was_broken_off_cannot_install(workshop: Workshop) -> None:
    assert workshop.can_install()
    workshop.python.write_text("#!/bin/sh\necho No module named pip; exit 1\n")
    assert not workshop.can_install()


def test_a_python_without_venv_is_told_the_package_to_install(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(prepare, "find_manager", lambda: APT)
    monkeypatch.setattr(prepare, "root_prefix", lambda manager: None)
    with pytest.raises(SetupError, match="no venv module") as refused:
        prepare.make_venv(workshop)
    assert re.search(r"apt-get install -y python3\.\d+-venv$", refused.value.hint)


def test_two_starts_take_turns(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with alone_in(tmp_path):
            order.append("second")

    with alone_in(tmp_path):
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


def test_a_java_that_cannot_be_installed_is_told_with_the_managers_last_lines(tmp_path: Path) -> None:
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


def test_jars_that_cannot_be_fetched_end_in_the_fetchers_one_line(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "missing", lambda: ("one",))
    monkeypatch.setattr(Step, "run", lambda *_, **__: Ran(2, "first 1.0\nerror: the jar second could not be fetched\n"))
    with pytest.raises(SetupError) as refused:
        prepare.make_jars_ready(workshop)
    assert str(refused.value) == "the jar second could not be fetched"


def test_nothing_is_started_when_no_jar_is_missing(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "missing", lambda: ())
    prepare.make_jars_ready(workshop)
    assert not (workshop.python.parent / "asked").exists()


def test_one_entry_of_the_lock_comes_with_its_hashes() -> None:
    assert entry_of("setuptools", LOCK) == ("setuptools==84.2.1 \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n")
    with pytest.raises(SetupError, match="no entry for wheel"):
        entry_of("wheel", LOCK)


def test_pips_talk_becomes_a_count_and_a_name() -> None:
    step = Step("packages")
    reader = PipReader(step, total=57)
    for line in ("Collecting polars==2.1.0 (from -r lock (line 1))", "  Downloading polars.whl", "Collecting numpy==2"):
        reader.on_line(line)
    assert step.at == "2 of 57: numpy"
    reader.on_line("Building wheel for pyspark (pyproject.toml): started")
    assert step.at == "building pyspark"


def test_the_program_refuses_in_one_line_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(workshop: Workshop, *, with_java: bool, with_browser: bool) -> None:
        raise SetupError("Java was not found", hint="type: something")

    monkeypatch.setattr(prepare, "prepare", refuse)
    assert prepare.main([]) == 2
    assert capsys.readouterr().err == "error: Java was not found Hint: type: something\n"


def test_the_lock_holds_hashes_and_no_registrys_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert not re.search(r"^--", lock, re.MULTILINE)
    packages = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in package for package in packages)
    assert "://" not in (ROOT / "src" / "strandline" / "spark" / "launch" / "jars.toml").read_text()


@pytest.mark.slow
def test_the_lock_holds_all_that_its_packages_need() -> None:
    ran = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
