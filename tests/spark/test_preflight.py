"""What the machine must have: refused in one message, with nothing left behind."""

import os
from pathlib import Path

import pytest

from strandline.errors import SetupError
from strandline.spark.launch import preflight
from strandline.spark.launch.find_java import Java
from strandline.spark.launch.preflight import (
    GIB,
    available_memory,
    local_folder,
    require_machine,
    require_memory,
    require_port,
    require_writable,
)


def test_a_folder_that_does_not_exist_yet_can_be_used_and_is_not_made(tmp_path: Path) -> None:
    require_writable(tmp_path / "a" / "b" / "c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["s3a://bucket/job", Path("s3a://bucket/job"), "file://host/jobs/a", "dbfs:/jobs/a"])
def test_an_address_is_no_folder_and_makes_none(place: str | Path) -> None:
    with pytest.raises(SetupError, match="is no folder of a mounted file system"):
        local_folder(place)


@pytest.mark.parametrize("place", ["file:/jobs/a", "file:///jobs/a", "file://localhost/jobs/a"])
def test_a_file_uri_of_this_machine_is_its_path(place: str) -> None:
    assert local_folder(place) == Path("/jobs/a")


@pytest.mark.parametrize("place", ["", " "])
def test_a_folder_needs_a_name(place: str) -> None:
    with pytest.raises(SetupError, match="has no name"):
        local_folder(place)


@pytest.mark.parametrize("place", ["jobs/a", "/jobs/a:b", "C:/jobs", Path("jobs")])
def test_a_path_is_one_from_here_on(place: str | Path) -> None:
    assert local_folder(place) == Path.cwd() / place


def test_a_folder_that_exists_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    require_writable(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="cannot write to the folder") as refused:
        require_writable(tmp_path / "file" / "below")
    assert refused.value.detail == "Not a directory"
    assert refused.value.hint


@pytest.mark.parametrize("where", ["/proc/strandline", "/sys/kernel"])
def test_a_folder_nobody_may_write_to_is_refused(where: str) -> None:
    with pytest.raises(SetupError, match=where):
        require_writable(Path(where))


def test_parents_made_for_the_trial_go_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="name too long"):
        require_writable(tmp_path / "made" / ("x" * 300))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_someone_else_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(SetupError, match="cannot write"):
        require_writable(tmp_path)


def test_memory_is_what_machine_and_container_both_allow(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  8388608 kB\n")
    assert available_memory(tmp_path / "meminfo", tmp_path) == 8 * GIB
    (tmp_path / "memory.max").write_text(f"{4 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {GIB}\n")
    assert available_memory(tmp_path / "meminfo", tmp_path) == 2 * GIB
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(tmp_path / "meminfo", tmp_path) == 8 * GIB


def test_a_system_that_does_not_tell_its_memory_is_let_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_memory(tmp_path / "none", tmp_path) is None
    monkeypatch.setattr(preflight, "available_memory", lambda: None)
    assert require_memory() is None


def test_too_little_memory_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "available_memory", lambda: GIB // 2)
    with pytest.raises(SetupError, match="0.5 GiB is free, Spark needs 1.5 GiB") as refused:
        require_memory()
    assert refused.value.hint


def test_a_port_can_be_opened() -> None:
    assert 0 < require_port() < 65536


def test_a_machine_without_loopback_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socket.socket", refuse)
    with pytest.raises(SetupError, match=r"no port of 127\.0\.0\.1 can be opened"):
        require_port()


def test_a_good_machine_makes_the_java_it_found_the_one_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/old/java")
    monkeypatch.setattr(preflight, "available_memory", lambda: 8 * GIB)
    monkeypatch.setattr(preflight, "find_java", lambda: Java(Path("/new/java/bin/java"), "17.0.15", Path("/new/java")))
    assert require_machine(tmp_path).version == "17.0.15"
    assert os.environ["JAVA_HOME"] == "/new/java"
