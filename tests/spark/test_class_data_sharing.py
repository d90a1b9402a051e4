"""Archives of classes: used when they are whole, made when there is none, never a reason not to start."""

import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.errors import SetupError
from strandline.spark.launch import session
from strandline.spark.launch.class_data_sharing import ClassArchive
from strandline.spark.launch.find_java import Java, find_java
from strandline.spark.launch.session import with_archive
from strandline.spark.patches.switch import is_on

OPTIONS = "spark.driver.extraJavaOptions"


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
    assert archive.options_to_use() == []
    ran(archive, archive.options_to_create())
    assert file_of(archive).suffix == ".new"
    used = archive.options_to_use()
    assert f"-XX:SharedArchiveFile={file_of(archive)}" in used
    assert file_of(archive).name.endswith(f"-{file_of(archive).stat().st_size}.jsa")
    ran(archive, used)


@pytest.mark.spark
def test_an_archive_that_was_cut_off_or_damaged_is_not_taken_and_made_anew(archive: ClassArchive) -> None:
    ran(archive, archive.options_to_create())
    whole = file_of(archive).read_bytes()
    for damaged in (b"", bytes(4096), whole[:4], whole[: len(whole) // 2]):
        file_of(archive).write_bytes(damaged)
        assert archive.options_to_use() == []
        ran(archive, archive.options_to_create())


@pytest.mark.spark
def test_a_taken_archive_that_changes_afterwards_does_not_keep_a_program_from_starting(archive: ClassArchive) -> None:
    ran(archive, archive.options_to_create())
    used, taken = archive.options_to_use(), file_of(archive)
    whole = taken.read_bytes()
    taken.write_bytes(whole[: len(whole) // 2] + bytes(4096) + whole[len(whole) // 2 + 4096 :])
    assert archive.options_to_use() == used
    ran(archive, used)
    taken.write_bytes(whole[: len(whole) // 2])
    assert archive.options_to_use() == []


@pytest.mark.spark
def test_an_archive_of_jars_that_were_touched_is_another_one(archive: ClassArchive) -> None:
    ran(archive, archive.options_to_create())
    assert archive.options_to_use()
    Path(archive.class_path).touch()
    assert archive.options_to_use() == []
    for _ in range(4):
        Path(archive.class_path).touch()
        ran(archive, archive.options_to_create())
        assert archive.options_to_use()
    assert len(list(archive.folder.iterdir())) == 3


def test_without_jars_or_a_folder_there_is_no_archive(archive: ClassArchive) -> None:
    Path(archive.class_path).unlink()
    assert (archive.options_to_use(), archive.options_to_create()) == ([], [])


@pytest.mark.spark
def test_of_two_that_ended_at_once_one_archive_is_taken_and_none_is_left(archive: ClassArchive) -> None:
    ran(archive, archive.options_to_create())
    new = file_of(archive)
    new.with_name(new.name.replace(f".{os.getpid()}.", ".1.")).write_bytes(new.read_bytes())
    new.with_name(new.name.replace(f".{os.getpid()}.", ".2.")).write_bytes(b"begun")
    assert archive.options_to_use()
    assert sorted(each.suffix for each in archive.folder.iterdir()) == [".jsa", ".new"]
    (begun,) = archive.folder.glob("*.new")
    os.utime(begun, (0, 0))
    assert archive.options_to_create()
    assert not begun.exists()


def test_all_jars_of_a_folder_count(archive: ClassArchive, tmp_path: Path) -> None:
    of_folder = ClassArchive(
        archive.folder, "test", archive.java, os.pathsep.join([str(tmp_path / "conf"), f"{tmp_path}/*"])
    )
    before = of_folder.options_to_create()
    (tmp_path / "two.jar").touch()
    assert before != of_folder.options_to_create() != []


def test_the_same_java_by_another_name_has_the_same_archive(archive: ClassArchive, tmp_path: Path) -> None:
    linked = tmp_path / "java"
    linked.symlink_to(archive.java.path)
    same = replace(archive, java=replace(archive.java, path=linked))
    assert same.options_to_create() == archive.options_to_create() != []


@pytest.mark.skipif(not is_on("class_archive"), reason="the patch is switched off")
def test_a_session_says_what_it_said_before_and_leaves_or_uses_an_archive(tmp_path: Path) -> None:
    java = Java(tmp_path / "java", "17.0.1", tmp_path)
    told = with_archive({OPTIONS: "-Xss4m", "a": "b"}, tmp_path, java)
    said, quiet, leaves = shlex.split(told[OPTIONS])
    assert (said, quiet, told["a"]) == ("-Xss4m", "-Xlog:cds*=off", "b")
    assert leaves.startswith(f"-XX:ArchiveClassesAtExit={tmp_path}/spark-")


def test_where_no_archive_can_be_left_nothing_is_said(tmp_path: Path) -> None:
    java = Java(tmp_path / "java", "17.0.1", tmp_path)
    assert with_archive({"a": "b"}, tmp_path / "nowhere", java) == {"a": "b"}


@pytest.mark.parametrize("said", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa"])
def test_who_says_something_of_archives_keeps_it(said: str, tmp_path: Path) -> None:
    assert with_archive({OPTIONS: said}, tmp_path) == {OPTIONS: said}


def test_without_a_java_there_is_no_archive_and_somebody_else_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Java:
        raise SetupError("there is no Java")

    monkeypatch.setattr(session, "find_java", none)
    assert with_archive({"a": "b"}, tmp_path) == {"a": "b"}


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


_STARTS = """
import sys
from pathlib import Path
from strandline.spark.launch.session import start_session
spark = start_session("archive", log=Path(sys.argv[1]))
assert spark.range(10).selectExpr("sum(id)").first()[0] == 45
jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current()
print(jvm.pid(), " ".join(jvm.info().arguments().get()))
"""


@pytest.mark.spark
@pytest.mark.skipif(not is_on("class_archive"), reason="the patch is switched off")
def test_a_spark_that_ended_leaves_an_archive_and_the_next_one_starts_with_it(tmp_path: Path) -> None:
    environ = {name: each for name, each in os.environ.items() if name != "SPARK_HOME"}
    environ |= {"STRANDLINE_HOME": str(tmp_path / "kept here"), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", _STARTS, str(tmp_path / "spark.log")]
    said = []
    for _ in range(2):
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=120)
        pid, _, arguments = ran.stdout.strip().splitlines()[-1].partition(" ")
        said.append(arguments)
        until = time.monotonic() + 120
        while is_alive(int(pid)) and time.monotonic() < until:
            time.sleep(0.1)  # it writes the archive once this program has ended
    assert "-XX:ArchiveClassesAtExit=" in said[0]
    assert "-XX:SharedArchiveFile=" in said[1]
