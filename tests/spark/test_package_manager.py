"""What a person is told to type."""

import pytest

from strandline.spark.launch import package_manager
from strandline.spark.launch.package_manager import APT, BREW, DNF, find_manager, java_line


def test_the_first_manager_the_machine_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name == "dnf" else None)
    assert find_manager() is DNF


def test_a_machine_without_a_manager_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert find_manager() is None
    assert "JAVA_HOME" in java_line(None)


def test_apt_is_asked_for_a_java_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_manager, "_apt_knows", lambda package: package == "openjdk-17-jre-headless")
    assert java_line(APT) == "type: sudo apt-get update && sudo apt-get install -y openjdk-17-jre-headless"


def test_apt_without_lists_is_asked_for_its_default_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_manager, "_apt_knows", lambda package: False)
    assert java_line(APT).endswith("default-jre-headless")


def test_homebrew_needs_no_sudo() -> None:
    assert java_line(BREW) == "type: brew install openjdk@21"
