"""Archives of classes: used when they are whole, made when there is none, never a reason not to start."""

import subprocess
from pathlib import Path

import pytest

from strandline.services.class_archive import ClassArchive
from strandline.spark.java import find_java


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    jar = tmp_path / "one.jar"
    jar.write_bytes(b"PK\x05\x06" + bytes(18))
    folder = tmp_path / "jars"
    folder.mkdir()
    return ClassArchive(folder, "test", find_java(), str(jar))


def ran(archive: ClassArchive, options: list[str]) -> None:
    command = [str(archive.java.path), *options, "-cp", archive.class_path, "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def file_of(archive: ClassArchive) -> Path:
    (file,) = archive.folder.iterdir()
    return file


@pytest.mark.spark
def test_a_program_that_ended_leaves_an_archive_and_the_next_one_uses_it(archive: ClassArchive) -> None:
    assert archive.used() == []
    ran(archive, archive.made())
    assert file_of(archive).suffix == ".new"
    used = archive.used()
    assert f"-XX:SharedArchiveFile={file_of(archive)}" in used
    assert file_of(archive).name.endswith(f"-{file_of(archive).stat().st_size}.jsa")
    ran(archive, used)


@pytest.mark.spark
def test_an_archive_that_was_cut_off_or_damaged_is_not_taken_and_made_anew(archive: ClassArchive) -> None:
    ran(archive, archive.made())
    whole = file_of(archive).read_bytes()
    for damaged in (b"", bytes(4096), whole[:4], whole[: len(whole) // 2]):
        file_of(archive).write_bytes(damaged)
        assert archive.used() == []
        ran(archive, archive.made())


@pytest.mark.spark
def test_a_taken_archive_that_changes_afterwards_does_not_keep_a_program_from_starting(archive: ClassArchive) -> None:
    ran(archive, archive.made())
    used, taken = archive.used(), file_of(archive)
    whole = taken.read_bytes()
    taken.write_bytes(whole[: len(whole) // 2] + bytes(4096) + whole[len(whole) // 2 + 4096 :])
    assert archive.used() == used
    ran(archive, used)
    taken.write_bytes(whole[: len(whole) // 2])
    assert archive.used() == []


@pytest.mark.spark
def test_an_archive_of_jars_that_were_touched_is_another_one(archive: ClassArchive) -> None:
    ran(archive, archive.made())
    assert archive.used()
    Path(archive.class_path).touch()
    assert archive.used() == []
    for _ in range(4):
        Path(archive.class_path).touch()
        ran(archive, archive.made())
        assert archive.used()
    assert len(list(archive.folder.iterdir())) == 3


def test_without_jars_or_a_folder_there_is_no_archive(archive: ClassArchive) -> None:
    Path(archive.class_path).unlink()
    assert (archive.used(), archive.made()) == ([], [])
