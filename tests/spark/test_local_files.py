"""Hadoop writes files to a local disk without a process for each, and they are as they would have been."""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from strandline.checkpoint.hadoop_checksums import Sums, judge_sums
from strandline.spark.patches import local_files
from strandline.spark.patches.local_files import install_local_files
from strandline.spark.patches.switch import is_on

pytestmark = pytest.mark.skipif(not is_on("local_files"), reason="the patch is switched off")

CLASSES = {"Hadoop's": "RawLocalFileSystem", "ours": local_files.NAME}


@pytest.fixture
def local(spark: SparkSession) -> Iterator[Any]:
    """Hadoop's files of this machine, as Hadoop writes them, for the time of a test."""
    context: Any = spark.sparkContext
    files = context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    field = context._jvm.java.lang.Class.forName(local_files._WRAPPER).getDeclaredField("fs")
    field.setAccessible(True)
    before = field.get(files)
    hadoops = context._jvm.org.apache.hadoop.fs.RawLocalFileSystem()
    hadoops.initialize(files.getUri(), context._jsc.hadoopConfiguration())
    field.set(files, hadoops)
    yield files
    field.set(files, before)


def used(local: Any) -> str:
    return str(local.getRaw().getClass().getSimpleName())


def test_a_spark_of_ours_writes_so_from_its_start(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    assert (
        used(context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())) == "LocalFiles"
    )


@pytest.mark.parametrize("whose", CLASSES)
def test_a_file_has_its_permissions_and_its_checksums(
    spark: SparkSession, local: Any, whose: str, tmp_path: Path
) -> None:
    if whose == "ours":
        install_local_files(spark)
    assert used(local) == CLASSES[whose]
    jvm: Any = spark.sparkContext._jvm
    path, new = jvm.org.apache.hadoop.fs.Path, jvm.org.apache.hadoop.fs.permission.FsPermission
    written = local.create(path(str(tmp_path / "made" / "whole")), True)
    written.write(b"some bytes")
    written.close()
    local.setPermission(path(str(tmp_path / "made" / "whole")), new("640"))
    local.mkdirs(path(str(tmp_path / "shared")))
    local.setPermission(path(str(tmp_path / "shared")), new("1777"))
    modes = {each.name: oct(stat.S_IMODE(each.stat().st_mode)) for each in tmp_path.rglob("*")}
    # Without a word Hadoop takes the umask that it is configured with, and not that of the process.
    assert modes == {"made": "0o755", "whole": "0o640", ".whole.crc": "0o640", "shared": "0o1777"}
    assert judge_sums(tmp_path / "made" / "whole") is Sums.FIT


def test_what_may_not_be_set_is_an_error(spark: SparkSession, local: Any, tmp_path: Path) -> None:
    install_local_files(spark)
    jvm: Any = spark.sparkContext._jvm
    nowhere = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "nowhere"))
    with pytest.raises(Py4JJavaError, match="nowhere"):
        local.setPermission(nowhere, jvm.org.apache.hadoop.fs.permission.FsPermission("600"))


def listed(files: Any, path: Any, folder: Path) -> list[tuple[Any, ...]]:
    """What is told of all that a folder holds."""
    found = []
    for each in files.listStatus(path(str(folder))):
        where, who = each.getPath().toString(), (each.getPermission().toString(), each.getOwner())
        found.append((where, each.getLen(), each.getModificationTime(), each.isDirectory(), *who, each.getBlockSize()))
    return sorted(found)


def test_what_a_folder_holds_is_told_as_hadoop_tells_it_whatever_changed(
    spark: SparkSession, local: Any, tmp_path: Path
) -> None:
    hadoops = local.getRaw()
    install_local_files(spark)
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path
    folder = tmp_path / "some folder"
    (folder / "within").mkdir(parents=True)
    for name in ("part-0", "part-1", "with space", "12:00:00", "ünïcode", ".hidden"):
        (folder / name).write_text(name)
    (folder / "elsewhere").symlink_to(tmp_path / "there")
    (folder / "nowhere").symlink_to(tmp_path / "not there")
    (folder / "loop").symlink_to(folder / "loop")
    (tmp_path / "there").write_text("1")
    changes: list[Callable[[], object]] = [
        lambda: (folder / "part-0").write_text("other"),
        lambda: (folder / "part-0").write_text("once again"),
        lambda: (folder / "part-1").chmod(0o600),
        lambda: os.utime(folder / "part-1", (1, 1)),
        (folder / "with space").unlink,
        lambda: (folder / "new").write_text("new"),
        lambda: (tmp_path / "there").write_text("22"),
        lambda: (folder / "new").rename(folder / "part-0"),
        lambda: (folder / "within" / "one more").write_text(""),
        lambda: shutil.rmtree(folder / "within"),
        lambda: (folder / "within").write_text("no longer a folder"),
    ]
    told = listed(local, path, folder)
    names = {Path(each[0]).name for each in told}
    assert names == {"part-0", "part-1", "with space", "12:00:00", "ünïcode", ".hidden", "elsewhere", "within"}
    for change in changes:
        change()
        before, told = told, listed(local, path, folder)
        assert told == listed(hadoops, path, folder)
        assert told != before
        assert told == listed(local, path, folder)


def test_a_file_whose_name_java_cannot_say_is_told_of(spark: SparkSession, local: Any, tmp_path: Path) -> None:
    """Hadoop passes it over."""
    Path(os.fsdecode(os.fsencode(tmp_path / "caf") + b"\xe9")).write_text("1")
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path
    assert listed(local, path, tmp_path) == []
    install_local_files(spark)
    for _ in range(2):
        [(where, size, modified, is_folder, *_)] = listed(local, path, tmp_path)
        assert Path(where).name == "caf\ufffd"
        assert (size, modified, is_folder) == (0, 0, False)


def test_a_file_holds_itself_and_what_is_not_there_is_an_error(spark: SparkSession, local: Any, tmp_path: Path) -> None:
    install_local_files(spark)
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path
    (tmp_path / "one").write_text("1")
    assert [Path(each[0]).name for each in listed(local, path, tmp_path / "one")] == ["one"]
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        listed(local, path, tmp_path / "gone")


def test_a_file_that_did_not_change_is_not_looked_at_again(spark: SparkSession, local: Any, tmp_path: Path) -> None:
    install_local_files(spark)
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path
    (tmp_path / "one").write_text("1")
    [first] = local.listStatus(path(str(tmp_path)))
    [again] = local.listStatus(path(str(tmp_path)))
    same = jvm.java.lang.System.identityHashCode
    assert same(first) == same(again)


def test_once_is_enough(spark: SparkSession, local: Any) -> None:
    install_local_files(spark)
    first = local.getRaw()
    install_local_files(spark)
    assert local.getRaw().equals(first)


def test_a_hadoop_that_has_no_such_place_writes_as_always(
    spark: SparkSession, local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_files, "_WRAPPER", "org.apache.hadoop.fs.NoSuchFileSystem")
    install_local_files(spark)
    assert used(local) == "RawLocalFileSystem"
