"""Which Java is taken, and what is said when none can be."""

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.errors import SetupError
from strandline.spark.launch.find_java import Java, find_java
from strandline.spark.launch.package_manager import BREW

pytestmark = pytest.mark.usefixtures("homebrew")

MakeJava = Callable[[str, str], Path]


@pytest.fixture
def homebrew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.spark.launch.find_java.find_manager", lambda: BREW)


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Puts a launcher that says something into a folder's bin, and gives that folder."""

    def make(name: str, script: str) -> Path:
        launcher = tmp_path / name / "bin" / "java"
        launcher.parent.mkdir(parents=True)
        launcher.write_text(f"#!/bin/sh\n{script}\n")
        launcher.chmod(0o755)
        return tmp_path / name

    return make


def says(version: str) -> str:
    return f"""echo 'openjdk version "{version}" 2025-04-15' >&2"""


def test_java_home_comes_before_path(make_java: MakeJava) -> None:
    chosen, on_path = make_java("chosen", says("21.0.2")), make_java("on_path", says("17.0.15"))
    found = find_java({"JAVA_HOME": str(chosen), "PATH": str(on_path / "bin")}, places=())
    assert found == Java(chosen / "bin" / "java", "21.0.2", chosen)


def test_an_old_java_home_gives_way_to_a_newer_java_on_path(make_java: MakeJava) -> None:
    old, new = make_java("old", says("1.8.0_392")), make_java("new", says("17.0.15"))
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}, places=()).home == new


def test_the_usual_places_are_searched_when_path_has_none(make_java: MakeJava, tmp_path: Path) -> None:
    make_java("jvm/java-11", says("11.0.2"))
    recent = make_java("jvm/java-21", says("21.0.2"))
    assert find_java({"PATH": ""}, places=(f"{tmp_path}/jvm/*/bin/java",)).home == recent


def test_the_home_is_the_one_java_names_itself(make_java: MakeJava, tmp_path: Path) -> None:
    shim = make_java("shim", f"echo '    java.home = {tmp_path}/real' >&2; " + says("17.0.15"))
    assert find_java({"PATH": str(shim / "bin")}, places=()).home == tmp_path / "real"


def test_words_before_the_version_do_not_confuse(make_java: MakeJava) -> None:
    chatty = make_java("chatty", "echo 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g' >&2; " + says("25.0.3"))
    assert find_java({"PATH": str(chatty / "bin")}, places=()).major == 25


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("17", 17), ("21-ea", 21), ("25.0.3", 25)]
)
def test_the_major_version_is_read_old_and_new_style(version: str, major: int) -> None:
    assert Java(Path("java"), version, Path()).major == major


def test_an_old_java_is_named_with_its_version_and_the_way_out(make_java: MakeJava) -> None:
    old = make_java("old", says("11.0.2"))
    with pytest.raises(SetupError, match=r"Java 11\.0\.2 is too old: Spark needs 17 or newer") as refused:
        find_java({"PATH": str(old / "bin")}, places=())
    assert str(old / "bin" / "java") in refused.value.detail
    assert refused.value.hint == "type: brew install openjdk@21"


def test_a_missing_java_is_one_message_with_the_line_to_type() -> None:
    with pytest.raises(SetupError, match="Java was not found") as refused:
        find_java({"PATH": ""}, places=())
    assert refused.value.hint == "type: brew install openjdk@21"


def test_a_java_home_that_holds_no_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as refused:
        find_java({"PATH": "", "JAVA_HOME": str(tmp_path)}, places=())
    assert f"JAVA_HOME={tmp_path}" in refused.value.detail


@pytest.mark.parametrize("script", ["exit 1", "echo hello", says("17.0.15") + "; exit 3"])
def test_a_broken_java_is_not_taken_for_a_missing_one(make_java: MakeJava, script: str) -> None:
    broken = make_java("broken", script)
    with pytest.raises(SetupError, match="does not start") as refused:
        find_java({"PATH": str(broken / "bin")}, places=())
    assert str(broken) in refused.value.detail
