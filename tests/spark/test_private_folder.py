"""Files and sockets of Spark's processes are private, and nothing that another user makes can hang a start."""

import fcntl
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.spark.launch import fork_client, fork_launcher, private_folder
from strandline.spark.launch.private_folder import is_private, private_settings, remove_stale_folders


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of its own, with a short name as sockets need one."""
    with tempfile.TemporaryDirectory(prefix="s-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setattr(private_folder, "_made", [])
        yield Path(folder)


def full_socket(path: Path) -> list[socket.socket]:
    """A socket that accepts nothing, with a full queue."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(0)
    opened = [listener]
    while True:
        waiting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        waiting.setblocking(False)
        opened.append(waiting)
        try:
            waiting.connect(str(path))
        except BlockingIOError:
            return opened


def ends_within(seconds: float, what: object) -> bool:
    thread = threading.Thread(target=what, daemon=True)  # type: ignore[arg-type]
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_full_socket_in_the_temporary_folder_hangs_no_start(mode: int, temporary: Path) -> None:
    folder = temporary / "strandline-python-evil"
    folder.mkdir()
    folder.chmod(mode)
    opened = full_socket(folder / "door")
    try:
        assert ends_within(10, fork_launcher.remove_stale_folders)
        assert (folder / "door").exists()
    finally:
        for each in opened:
            each.close()


def test_the_client_of_a_fork_server_whose_queue_is_full_goes_on_without_it(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_client, "_SECONDS", 0.1)
    opened = full_socket(temporary / "door")
    found: list[object] = []
    try:
        assert ends_within(10, lambda: found.append(fork_client._fork(str(temporary / "door"), ["-m", "x"])))
        assert found == [None]
    finally:
        for each in opened:
            each.close()


def test_sparks_own_files_are_in_a_folder_that_no_other_user_can_enter(temporary: Path) -> None:
    found = private_settings({}, {})
    folder = Path(found["spark.local.dir"])
    assert folder.parent == temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert found["spark.python.unix.domain.socket.dir"] == str(folder)
    assert private_settings({}, {}) == found


def test_a_folder_that_the_user_chose_stays(temporary: Path) -> None:
    assert "spark.local.dir" not in private_settings({"spark.local.dir": "/data"}, {})
    assert "spark.local.dir" not in private_settings({}, {"SPARK_LOCAL_DIRS": "/data"})
    both = {"spark.local.dir": "/data", "spark.python.unix.domain.socket.dir": "/data"}
    assert private_settings(both, {}) == {}


def test_folders_of_killed_processes_are_removed_and_no_others(temporary: Path) -> None:
    names = ("killed", "running", "open", "file")
    killed, running, open_, file = (temporary / f"strandline-spark-{name}" for name in names)
    target = temporary / "target"
    for each in (killed, running, open_, target):
        each.mkdir(mode=0o700)
    open_.chmod(0o777)  # not made by us
    file.touch(mode=0o600)
    (temporary / "strandline-spark-link").symlink_to(target)
    handle = os.open(running, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    remove_stale_folders()
    os.close(handle)
    assert not killed.exists()
    assert all(each.exists() for each in (running, open_, file, target))
    assert [is_private(each) for each in (running, open_, file, temporary / "strandline-spark-link", killed)] == [
        True, False, False, False, False,
    ]  # fmt: skip
